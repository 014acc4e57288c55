//! `longshore migrate-store`

use std::path::{Path, PathBuf};

use clap::Args;
use longshore_core::id::Seq;
use longshore_store::{Clock, StoreError, SystemClock, SystemKind};
use longshore_store_embedded::{ClockMode, Export, KeyCursor, in_use, moved_file};
use longshore_store_postgres::{Import, ImportMeta, Imported, PostgresOptions};

use super::serve::virtual_time;
use crate::context::Context;
use crate::terminal::error::CliError;
use crate::terminal::progress;

/// Jobs that are read and written at once.
const BATCH: usize = 2_000;
/// System records that are read at once: a delivery has a snapshot of its job.
const SYSTEM_BATCH: usize = 100;

/// Move a data directory into PostgreSQL.
#[derive(Debug, Args)]
#[command(after_help = "\
The server of the directory must be stopped, and the schema must be empty. The command copies all
jobs with payloads, leases, attempts, history and keys, and all workflows, queues, schedules,
webhook endpoints with their secrets, deliveries, access tokens and audit entries. Ids, lease tokens
and access tokens remain valid: workers continue with the new address.

The copy is one transaction, and its counts are compared: all is moved, or nothing. The file
DIR/moved then marks the directory, and servers refuse it. Repeat the command if it was interrupted.
Without DIR/moved the directory is served again, as it was before the move.

Examples:
  longshore migrate-store --from longshore-data --to postgres://owner@db.example/jobs
  longshore migrate-store --from longshore-data --to 'postgres://owner@db.example/jobs?schema=mail'")]
pub(crate) struct MigrateStore {
    /// Data directory
    #[arg(long, value_name = "DIR")]
    from: PathBuf,
    /// URL of the database, with a role that can create the schema or owns it
    #[arg(long, value_name = "URL", env = "LONGSHORE_STORE", hide_env_values = true)]
    to: String,
}

#[derive(serde::Serialize)]
struct MigrateStoreJson<'a> {
    from: &'a Path,
    schema: &'a str,
    queues: u64,
    jobs: u64,
    payloads: u64,
    idempotency_keys: u64,
    external_ids: u64,
    dependencies: u64,
    workflows: u64,
    members: u64,
    system_records: u64,
}

impl MigrateStore {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let options =
            PostgresOptions::from_url(&self.to).map_err(|error| CliError::refused(format!("--to: {error}")))?;
        let export = Export::open(&self.from).map_err(|error| cannot_read(&error, &self.from))?;
        let source = export.fingerprint().map_err(|error| cannot_read(&error, &self.from))?;
        let target = options.display_url().map_err(|error| CliError::refused(format!("--to: {error}")))?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let moved = runtime.block_on(async {
            match Import::find(&options, &source).await.map_err(|error| cannot_write(&error))? {
                Some(moved) => {
                    context.output.info("an earlier run has moved all jobs; marking the directory as moved");
                    Ok(moved)
                }
                None => copy_store(context, &export, &options, &self.from, source).await,
            }
        })?;
        export.mark_moved(&target).map_err(|error| not_marked(&error, &self.from))?;
        let Imported { queues, jobs, payloads, keys, external_ids, dependencies, workflows, members, system_records } =
            moved;
        if context.output.json {
            return context.output.json(&MigrateStoreJson {
                from: &self.from,
                schema: &options.schema,
                queues,
                jobs,
                payloads,
                idempotency_keys: keys,
                external_ids,
                dependencies,
                workflows,
                members,
                system_records,
            });
        }
        let from = self.from.display();
        context.output.line(&format!(
            "moved {jobs} jobs, {queues} queues, {keys} idempotency keys, {external_ids} external ids, \
             {dependencies} dependencies, {workflows} workflows with {members} members, \
             {system_records} system records"
        ))?;
        context.output.info(&format!("{from} is marked as moved: start servers with `longshore serve --store URL`"));
        Ok(())
    }
}

async fn copy_store(
    context: &Context,
    export: &Export,
    options: &PostgresOptions,
    from: &Path,
    source: String,
) -> Result<Imported, CliError> {
    let read = |error: StoreError| cannot_read(&error, from);
    let meta = export.notes().map_err(read)?;
    let virtual_now = match meta.time {
        ClockMode::Real => None,
        ClockMode::Virtual => Some(virtual_time::start(Some(from), SystemClock::new().now())?.0.now()),
    };
    let mut import = Import::begin(options).await.map_err(|error| cannot_write(&error))?;
    let queues = export.queues().map_err(read)?;
    import.queues(&export.queue_names(), &export.policies(), &queues).await.map_err(|error| cannot_write(&error))?;
    copy_jobs(context, export, &mut import, from).await?;
    let mut cursor = Some(KeyCursor::default());
    while let Some(after) = cursor {
        let (keys, next) = export.keys(&after, BATCH).map_err(read)?;
        if !keys.is_empty() {
            import.keys(&keys).await.map_err(|error| cannot_write(&error))?;
        }
        cursor = next;
    }
    for ids in export.external_ids().map_err(read)?.chunks(BATCH) {
        import.external_ids(ids).await.map_err(|error| cannot_write(&error))?;
    }
    for edges in export.edges().map_err(read)?.chunks(BATCH) {
        import.dependencies(edges).await.map_err(|error| cannot_write(&error))?;
    }
    let mut after = Seq(0);
    loop {
        let workflows = export.workflows(after, 100).map_err(read)?;
        let Some(last) = workflows.last() else { break };
        after = last.workflow.number;
        for exported in &workflows {
            import
                .workflow(&exported.workflow, &exported.members, &exported.names)
                .await
                .map_err(|error| cannot_write(&error))?;
        }
    }
    copy_system_records(export, &mut import, from).await?;
    let (epoch, next_seq, totals) = (meta.epoch, meta.next_seq, meta.totals);
    let meta = ImportMeta { epoch, next_seq, totals, virtual_now, source };
    import.finish(&meta).await.map_err(|error| cannot_write(&error))
}

/// Copies schedules, webhook endpoints, deliveries, tokens and audit entries.
async fn copy_system_records(export: &Export, import: &mut Import, from: &Path) -> Result<(), CliError> {
    for kind in SystemKind::ALL {
        let mut start = Vec::new();
        loop {
            let records =
                export.system_records(kind, start, SYSTEM_BATCH).map_err(|error| cannot_read(&error, from))?;
            let Some(last) = records.last() else { break };
            start = [&*last.key, &[0]].concat();
            import.system_records(kind, &records).await.map_err(|error| cannot_write(&error))?;
        }
    }
    Ok(())
}

/// Copies all jobs, and compares the number of ended jobs with the counters of the directory.
async fn copy_jobs(context: &Context, export: &Export, import: &mut Import, from: &Path) -> Result<(), CliError> {
    let read = |error: StoreError| cannot_read(&error, from);
    let total = export.count().map_err(read)?;
    let bar = progress::bar(Some(total), context.output.json);
    let mut after = Seq(0);
    loop {
        let jobs = export.jobs(after, BATCH).map_err(read)?;
        let Some((last, _)) = jobs.last() else { break };
        after = last.seq;
        import.jobs(&jobs).await.map_err(|error| cannot_write(&error))?;
        bar.inc(jobs.len() as u64);
        bar.set_message(format!("{} of {total} jobs", bar.position()));
    }
    bar.finish_and_clear();
    for (queue, state, jobs) in export.finished_counts().map_err(read)? {
        let found = import.counts().find(|(name, _)| **name == queue);
        let found = found.and_then(|(_, counts)| counts.get(state as usize).copied()).unwrap_or(0);
        // More is possible: the counters leave out ended jobs with pending propagation.
        if found < jobs {
            let state = state.as_str();
            return Err(CliError::failed(format!("queue {queue} has {found} {state} jobs, its counter says {jobs}"))
                .hint("nothing was moved; verify the directory with `longshore doctor DIR`"));
        }
    }
    Ok(())
}

fn cannot_read(error: &StoreError, from: &Path) -> CliError {
    let failure = CliError::failed(format!("cannot move {}: {error}", from.display()));
    if in_use(error) {
        return failure.hint("stop its server first: the store must not change while it is moved");
    }
    if let Some(hint) = when_moved(error) {
        return failure.hint(hint);
    }
    if let StoreError::Format(_) = error {
        return failure.hint("--from must be the data directory of a server, as in `longshore serve --data DIR`");
    }
    failure
}

/// Returns the hint for a directory whose jobs were moved.
pub(crate) fn when_moved(error: &StoreError) -> Option<String> {
    let file = moved_file(error)?;
    Some(format!(
        "start servers with `longshore serve --store URL`; to return to the directory as it was before the move, stop \
         them and delete {}",
        file.display()
    ))
}

fn not_marked(error: &StoreError, from: &Path) -> CliError {
    let from = from.display();
    CliError::failed(format!("all jobs were moved, but {from} cannot be marked as moved: {}", error.cause()))
        .hint("fix the cause and repeat the command; until then start no server on the directory")
}

/// Does not print the URL, which may have a password.
fn cannot_write(error: &StoreError) -> CliError {
    if error.may_have_applied() {
        let message = format!("unknown whether the jobs were moved: {}", error.cause());
        return CliError::failed(message).hint("repeat the command: it checks, and moves the jobs if necessary");
    }
    let failure = CliError::failed(format!("nothing was moved: {error}"));
    if let StoreError::NotEmpty { .. } = error {
        return failure.hint("choose an empty schema: --to 'postgres://…?schema=NAME'");
    }
    failure
}
