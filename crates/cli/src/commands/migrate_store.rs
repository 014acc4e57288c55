//! `longshore migrate-store`

use std::path::{Path, PathBuf};

use clap::Args;
use longshore_codec::codec;
use longshore_core::id::Seq;
use longshore_store::{Clock, StoreError, SystemClock};
use longshore_store_embedded::{ClockMode, Export, in_use, moved_file};
use longshore_store_postgres::{Import, ImportMeta, Imported, Options};

use super::serve::virtual_time;
use crate::context::Context;
use crate::terminal::error::CliError;
use crate::terminal::progress;

/// Jobs that are read and sent at once.
const SLICE: usize = 2_000;

/// Move a data directory into PostgreSQL.
#[derive(Debug, Args)]
#[command(after_help = "\
The server of the directory must be stopped, and the schema empty. All jobs go, in every state,
with payloads, leases, attempts, history, keys, workflows and queues; ids and lease tokens stay
valid, so that workers go on with the new address. It is one transaction: it is done, counted and
compared, or nothing was moved. The directory is then marked as moved: servers refuse it. Run the
command again if it was interrupted. The file DIR/moved is the mark; without it the directory is
served again, as it was before the move.

Examples:
  longshore migrate-store --from longshore-data --to postgres://owner@db.example/jobs
  longshore migrate-store --from longshore-data --to 'postgres://owner@db.example/jobs?schema=mail'")]
pub(crate) struct MigrateStore {
    /// The data directory
    #[arg(long, value_name = "DIR")]
    from: PathBuf,
    /// The database, by a role that may create a schema or owns the one that is named
    #[arg(long, value_name = "URL", env = "LONGSHORE_STORE", hide_env_values = true)]
    to: String,
}

#[derive(serde::Serialize)]
struct Moved<'a> {
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
}

impl MigrateStore {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let options = Options::from_url(&self.to).map_err(|error| CliError::refused(format!("--to: {error}")))?;
        let export = Export::open(&self.from).map_err(|error| cannot_read(&error, &self.from))?;
        let source = export.fingerprint().map_err(|error| cannot_read(&error, &self.from))?;
        let target = options.place().map_err(|error| CliError::refused(format!("--to: {error}")))?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let moved = runtime.block_on(async {
            match Import::find(&options, &source).await.map_err(|error| cannot_write(&error))? {
                Some(moved) => {
                    context.screen.info("an earlier run has moved everything; only the directory was not marked yet");
                    Ok(moved)
                }
                None => copy_store(context, &export, &options, &self.from, source).await,
            }
        })?;
        export.mark_moved(&target).map_err(|error| not_marked(&error, &self.from))?;
        let Imported { queues, jobs, payloads, keys, external_ids, dependencies, workflows, members } = moved;
        if context.screen.json {
            return context.screen.json(&Moved {
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
            });
        }
        let from = self.from.display();
        context.screen.line(&format!(
            "moved and compared: {jobs} jobs, {queues} queues, {keys} idempotency keys, {external_ids} external ids, \
             {dependencies} dependencies, {workflows} workflows with {members} members"
        ))?;
        context.screen.info(&format!(
            "{from} is marked as moved: start servers with `longshore serve --store URL`, none on the directory"
        ));
        Ok(())
    }
}

async fn copy_store(
    context: &Context,
    export: &Export,
    options: &Options,
    from: &Path,
    source: String,
) -> Result<Imported, CliError> {
    let read = |error: StoreError| cannot_read(&error, from);
    let notes = export.notes().map_err(read)?;
    let virtual_now = match notes.time {
        ClockMode::Real => None,
        ClockMode::Virtual => Some(virtual_time::start(Some(from), SystemClock::new().now())?.0.now()),
    };
    let mut import = Import::begin(options).await.map_err(|error| cannot_write(&error))?;
    let queues = export.queues().map_err(read)?;
    import.queues(&export.queue_names(), &export.policies(), &queues).await.map_err(|error| cannot_write(&error))?;
    carry_jobs(context, export, &mut import, from).await?;
    let mut last = Vec::new();
    loop {
        let keys = export.keys(&last, SLICE).map_err(read)?;
        let Some((path, _)) = keys.last() else { break };
        last = codec::key::encode(path);
        import.keys(&keys).await.map_err(|error| cannot_write(&error))?;
    }
    for ids in export.external_ids().map_err(read)?.chunks(SLICE) {
        import.external_ids(ids).await.map_err(|error| cannot_write(&error))?;
    }
    for edges in export.edges().map_err(read)?.chunks(SLICE) {
        import.dependencies(edges).await.map_err(|error| cannot_write(&error))?;
    }
    let mut after = Seq(0);
    loop {
        let workflows = export.workflows(after, 100).map_err(read)?;
        let Some(last) = workflows.last() else { break };
        after = last.workflow.number;
        for whole in &workflows {
            import
                .workflow(&whole.workflow, &whole.members, &whole.names)
                .await
                .map_err(|error| cannot_write(&error))?;
        }
    }
    let (epoch, next_number, totals) = (notes.epoch, notes.next_number, notes.totals);
    let notes = ImportMeta { epoch, next_number, totals, virtual_now, source };
    import.finish(&notes).await.map_err(|error| cannot_write(&error))
}

/// All jobs, and whether as many have ended as the directory says.
async fn carry_jobs(context: &Context, export: &Export, import: &mut Import, from: &Path) -> Result<(), CliError> {
    let read = |error: StoreError| cannot_read(&error, from);
    let total = export.count().map_err(read)?;
    let bar = progress::bar(Some(total), context.screen.json);
    let mut after = Seq(0);
    loop {
        let jobs = export.jobs(after, SLICE).map_err(read)?;
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
        // An ended job that still owes its dependents the news counts among the living.
        if found < jobs {
            return Err(CliError::failed(format!("{queue} has {found} {} jobs, not {jobs}", state.as_str()))
                .hint("`longshore doctor DIR` says more; nothing was moved"));
        }
    }
    Ok(())
}

fn cannot_read(error: &StoreError, from: &Path) -> CliError {
    let failure = CliError::failed(format!("cannot move {}: {error}", from.display()));
    if in_use(error) {
        return failure.hint("stop its server first: nothing may change while it is moved");
    }
    if let Some(hint) = when_moved(error) {
        return failure.hint(hint);
    }
    if let StoreError::Format(_) = error {
        return failure.hint("--from is the data directory of a server, as given to `longshore serve --data DIR`");
    }
    failure
}

/// What to do about a directory that is refused because its jobs were moved.
pub(crate) fn when_moved(error: &StoreError) -> Option<String> {
    let file = moved_file(error)?;
    Some(format!(
        "start servers with `longshore serve --store URL` there; to go back to this directory as it was before the move, \
         stop those servers and delete {}",
        file.display()
    ))
}

fn not_marked(error: &StoreError, from: &Path) -> CliError {
    let from = from.display();
    CliError::failed(format!("everything was moved, but {from} could not be marked as moved: {}", error.cause()))
        .hint("run the same command again once the cause is gone; until then start no server on the directory")
}

/// The address is not repeated: it may hold a password.
fn cannot_write(error: &StoreError) -> CliError {
    if error.may_have_applied() {
        let told = format!("it is not known whether the jobs were moved: {}", error.cause());
        return CliError::failed(told).hint("run the same command again: it finds out, and moves them if need be");
    }
    let failure = CliError::failed(format!("nothing was moved: {error}"));
    if let StoreError::NotEmpty { .. } = error {
        return failure.hint("give a schema of its own: --to 'postgres://…?schema=NAME'");
    }
    failure
}
