//! The only place with SQL. Each function is one question or one whole transaction; what it answers are
//! records, never rows.
//!
//! Lock order inside a transaction: sandbox, then node, tenant, project, then the rest. Events come last, so that a
//! transaction has its number before an event has its sequence number (see `events.rs`).

pub(crate) mod enrolment;
pub(crate) mod events;
pub(crate) mod idempotency;
pub(crate) mod join_tokens;
pub(crate) mod keys;
pub(crate) mod listener;
pub(crate) mod nodes;
pub(crate) mod operations;
pub(crate) mod placement;
pub(crate) mod ports;
pub(crate) mod projects;
pub(crate) mod quotas;
pub(crate) mod replacement;
pub(crate) mod sandbox_changes;
pub(crate) mod sandboxes;
pub(crate) mod templates;
pub(crate) mod tenants;
pub(crate) mod triggers;
pub(crate) mod usage;

use std::{str::FromStr as _, time::Duration};

use space_api::quotas::Quota;
use sqlx::{
    PgPool, Postgres, Transaction,
    postgres::{PgConnectOptions, PgPoolOptions},
};

pub(crate) type Tx = Transaction<'static, Postgres>;

/// A connection that rested longer than this is tested before use; younger ones are taken on trust.
const TRUSTED_IDLE: Duration = Duration::from_secs(1);

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// No connection, or the server is going away: the same request may work in a moment.
    #[error("the database does not answer")]
    Unavailable(#[source] sqlx::Error),
    #[error("the database refused")]
    Database(#[source] sqlx::Error),
    /// A row holds what this version can't have written.
    #[error("unreadable row: {0}")]
    Corrupt(String),
    #[error("cannot migrate the database")]
    Migrate(#[source] sqlx::migrate::MigrateError),
}

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        if is_outage(&error) { Self::Unavailable(error) } else { Self::Database(error) }
    }
}

impl StoreError {
    /// The name of the unique constraint that was violated, if that is what went wrong.
    pub(crate) fn violated(&self) -> Option<&str> {
        let Self::Database(sqlx::Error::Database(error)) = self else { return None };
        error.is_unique_violation().then(|| error.constraint()).flatten()
    }
}

fn is_outage(error: &sqlx::Error) -> bool {
    // Classes of SQLSTATE: 08 connection, 53 resources, 57P operator intervention; 57014 is our own timeout.
    if let sqlx::Error::Database(error) = error {
        let code = error.code().unwrap_or_default();
        return ["08", "53", "57"].iter().any(|class| code.starts_with(class));
    }
    matches!(
        error,
        sqlx::Error::Io(_)
            | sqlx::Error::Tls(_)
            | sqlx::Error::Protocol(_)
            | sqlx::Error::PoolTimedOut
            | sqlx::Error::PoolClosed
            | sqlx::Error::WorkerCrashed
    )
}

/// How the database is reached.
#[derive(Debug, Clone)]
pub(crate) struct StoreOptions {
    pub(crate) url: String,
    pub(crate) max_connections: u32,
    pub(crate) acquire_timeout: Duration,
    pub(crate) statement_timeout: Duration,
    /// Of tenants for which nothing else was set.
    pub(crate) default_quota: Quota,
}

#[derive(Debug, Clone)]
pub(crate) struct Store {
    pool: PgPool,
    default_quota: Quota,
}

impl Store {
    /// Does not connect yet: a daemon starts while its database is away.
    pub(crate) fn new(options: &StoreOptions) -> Result<Self, StoreError> {
        let statement_timeout = options.statement_timeout.as_millis().to_string();
        let connect = PgConnectOptions::from_str(&options.url)?.application_name("space-controld").options([
            ("statement_timeout", statement_timeout.as_str()),
            ("idle_in_transaction_session_timeout", "60000"),
        ]);
        let pool = PgPoolOptions::new()
            .max_connections(options.max_connections)
            .acquire_timeout(options.acquire_timeout)
            .test_before_acquire(false)
            .before_acquire(|connection, meta| {
                Box::pin(async move {
                    use sqlx::Connection as _;
                    Ok(meta.idle_for < TRUSTED_IDLE || connection.ping().await.is_ok())
                })
            })
            .connect_lazy_with(connect);
        Ok(Self { pool, default_quota: options.default_quota })
    }

    pub(crate) async fn migrate(&self) -> Result<(), StoreError> {
        sqlx::migrate!("./migrations").run(&self.pool).await.map_err(StoreError::Migrate)
    }

    /// Whether the database answers.
    pub(crate) async fn ping(&self) -> Result<(), StoreError> {
        sqlx::query("select 1").execute(&self.pool).await?;
        Ok(())
    }

    pub(crate) async fn close(&self) {
        self.pool.close().await;
    }

    pub(crate) fn pool(&self) -> &PgPool {
        &self.pool
    }

    async fn begin(&self) -> Result<Tx, StoreError> {
        Ok(self.pool.begin().await?)
    }
}

/// A column that must hold one of our own codes.
fn coded<T>(value: Option<T>, column: &str, text: &str) -> Result<T, StoreError> {
    value.ok_or_else(|| StoreError::Corrupt(format!("{column} = {text:?}")))
}

/// PostgreSQL has no unsigned integers; what we store never exceeds the signed range.
fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// The other way: columns with a check or a history of only [`signed`] values.
fn unsigned(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}
