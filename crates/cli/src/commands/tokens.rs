//! `longshore tokens`

use std::path::PathBuf;

use clap::{Args, Subcommand};
use longshore_api::access::{CreatedToken, NewToken, Token, Tokens};
use longshore_api::enums::TokenAction;
use longshore_api::{Duration, Time};
use longshore_core::Timestamp;
use longshore_core::rate_limit::RateLimit;
use longshore_server::TokenRecord;
use longshore_server::tokens::{self, NewTokenSpec, Revocation, TokenError};
use longshore_store::{Clock, Store, SystemClock};

use crate::commands::serve::open_offline;
use crate::context::Context;
use crate::terminal::error::CliError;
use crate::terminal::table::TextTable;

#[derive(Debug, Subcommand)]
pub(crate) enum TokensCommand {
    /// Create a token and print it; it is not shown again
    #[command(after_help = "\
Actions: submit, work, read, operate, admin. Queues: names, or starts of names with * at the end.
With --data or --store no server is needed: the first token of a server is created so.

Examples:
  longshore tokens create --data /var/lib/longshore --name admin \\
      --actions submit,work,read,operate,admin --queues '*'
  longshore tokens create --name mailer --actions submit,work --queues 'mail,reports.*' --expires 90d")]
    Create(CreateToken),
    /// List tokens, without their secrets
    List(TokenStore),
    /// Revoke a token
    Revoke(RevokeToken),
}

/// The store of the tokens; the server of the context without it.
#[derive(Debug, Args)]
pub(crate) struct TokenStore {
    /// Data directory, if no server uses it
    #[arg(long, value_name = "DIR", conflicts_with = "store")]
    data: Option<PathBuf>,
    /// Store instead of --data: DIR or postgres://…
    #[arg(long, value_name = "STORE")]
    store: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct CreateToken {
    #[command(flatten)]
    store: TokenStore,
    /// Name for people
    #[arg(long)]
    name: String,
    /// Actions, separated by commas: submit, work, read, operate, admin
    #[arg(long, value_delimiter = ',', required = true)]
    actions: Vec<TokenAction>,
    /// Queues, separated by commas: names, or starts of names with *
    #[arg(long, value_delimiter = ',', required = true)]
    queues: Vec<String>,
    /// How long the token is valid, such as 90d; without limit if absent
    #[arg(long, value_name = "DURATION")]
    expires: Option<Duration>,
    /// Requests and jobs per second on each server; without limit if absent
    #[arg(long, value_name = "NUMBER")]
    rate: Option<u32>,
    /// Requests and jobs that may come at once, by default those of one second
    #[arg(long, value_name = "NUMBER", requires = "rate")]
    burst: Option<u32>,
}

#[derive(Debug, Args)]
pub(crate) struct RevokeToken {
    #[command(flatten)]
    store: TokenStore,
    /// The id of the token: lsk_ID_…
    id: String,
    /// Revoke the last token too: without any, the server trusts its own machine
    #[arg(long)]
    force: bool,
}

impl TokensCommand {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        match self {
            Self::Create(create) => create.run(context),
            Self::List(store) => list(context, store),
            Self::Revoke(revoke) => revoke.run(context),
        }
    }
}

impl TokenStore {
    fn is_offline(&self) -> bool {
        self.data.is_some() || self.store.is_some()
    }

    /// Runs a command on the store itself.
    fn with_store<T, F>(self, work: impl FnOnce(std::sync::Arc<dyn Store>) -> F) -> Result<T, CliError>
    where
        F: Future<Output = Result<T, CliError>>,
    {
        // The store on PostgreSQL needs a runtime with several threads.
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        runtime.block_on(async {
            let store = open_offline(self.data, self.store).await?;
            work(store).await
        })
    }
}

impl CreateToken {
    fn run(self, context: &Context) -> Result<(), CliError> {
        let Self { store, name, actions, queues, expires, rate, burst } = self;
        let created = if store.is_offline() {
            store.with_store(|store| async move {
                let expires_at = expires.map(|expires| store.now() + expires);
                let spec = NewTokenSpec { name, actions, queues, expires_at, rate, burst };
                let (record, secret) = tokens::create(&*store, spec).await.map_err(failed)?;
                Ok(CreatedToken { token: secret.reveal().to_owned(), details: to_wire(&record) })
            })?
        } else {
            let expires_at = expires.map(|expires| time(SystemClock::new().now() + expires));
            let client = context.client()?;
            let token = NewToken { name, actions, queues, expires_at, rate, burst };
            context.call(async { Ok(client.create_token(&token).await?) })?
        };
        if context.output.json {
            return context.output.json(&created);
        }
        context.output.info(&format!("token {} is created; it is not shown again", created.details.id));
        context.output.line(&created.token)
    }
}

impl RevokeToken {
    fn run(self, context: &Context) -> Result<(), CliError> {
        let Self { store, id, force } = self;
        // A whole token is accepted too: only its id is used.
        let id = id.strip_prefix("lsk_").and_then(|rest| rest.split('_').next()).unwrap_or(&id).to_owned();
        if store.is_offline() {
            let revoked = store.with_store(|store| {
                let id = id.clone();
                async move { tokens::revoke(&*store, &id, !force).await.map_err(|error| failed(error.into())) }
            })?;
            match revoked {
                Revocation::Revoked => {}
                Revocation::NotFound => {
                    return Err(CliError::refused("there is no token with this id").hint("`longshore tokens list`"));
                }
                Revocation::IsLast => {
                    let text = "this is the last token: without any, the server trusts its own machine";
                    return Err(CliError::refused(text).hint("create another token first, or use --force"));
                }
            }
        } else {
            let client = context.client()?;
            let revoke = async {
                if force { client.revoke_token(&id).await } else { client.revoke_token_unless_last(&id).await }
            };
            context.call(async { Ok(revoke.await?) })?;
        }
        context.output.info(&format!("token {id} is revoked"));
        Ok(())
    }
}

fn list(context: &Context, store: TokenStore) -> Result<(), CliError> {
    let tokens = if store.is_offline() {
        store.with_store(|store| async move {
            let tokens = tokens::list(&*store).await.map_err(|error| failed(error.into()))?;
            Ok(Tokens { tokens: tokens.iter().map(to_wire).collect() })
        })?
    } else {
        let client = context.client()?;
        context.call(async { Ok(client.tokens().await?) })?
    };
    if context.output.json {
        return context.output.json(&tokens);
    }
    if tokens.tokens.is_empty() {
        context.output.info("there are no tokens: the server answers its own machine only, without one");
        return Ok(());
    }
    let mut table = TextTable::new(&["ID", "NAME", "ACTIONS", "QUEUES", "RATE", "EXPIRES", "LAST USED"]);
    let shown = |at: Option<Time>, never: &str| at.map_or_else(|| never.to_owned(), |at| at.to_string());
    for token in &tokens.tokens {
        let actions: Vec<&str> = token.actions.iter().map(|action| action.as_str()).collect();
        table.row(vec![
            token.id.as_str().into(),
            token.name.as_str().into(),
            actions.join(", ").into(),
            token.queues.join(", ").into(),
            token.rate.map_or_else(|| "-".to_owned(), |rate| format!("{rate}/s")).into(),
            shown(token.expires_at, "never").into(),
            shown(token.last_used_at, "never").into(),
        ]);
    }
    context.output.table(&table)
}

fn to_wire(record: &TokenRecord) -> Token {
    Token {
        id: record.id.clone(),
        name: record.name.clone(),
        actions: record.permissions.actions.actions().collect(),
        queues: record.permissions.queues.patterns().iter().map(ToString::to_string).collect(),
        created_at: time(record.created_at),
        expires_at: record.expires_at.map(time),
        last_used_at: record.last_used_at.map(time),
        rate: record.rate_limit.map(RateLimit::rate),
        burst: record.rate_limit.map(RateLimit::burst),
    }
}

fn time(at: Timestamp) -> Time {
    Time(at.as_millis())
}

fn failed(error: TokenError) -> CliError {
    match error {
        TokenError::Invalid(invalid) => CliError::refused(invalid.to_string()),
        TokenError::Store(error) => CliError::failed(error.to_string()),
    }
}
