//! A private PostgreSQL: made in a temporary directory, reached by a Unix socket alone, gone with the process.
//!
//! PostgreSQL refuses to run as root; there it runs as `postgres`, or `nobody` where that user is missing. The server
//! dies with the process by way of its parent-death signal, so it is started from a thread that lives as long as the
//! server is wanted: the kernel sends that signal when the *thread* ends. `initdb` takes seconds and always makes the
//! same, so it runs once a machine and is copied after that.

mod server;
mod shell;
mod template;

use std::sync::{
    OnceLock,
    atomic::{AtomicU32, Ordering},
};

use anyhow::Context as _;

pub use server::Server;

/// One test's database on the server that all tests of this process share.
#[derive(Debug)]
pub struct Database {
    url: String,
}

impl Database {
    /// An empty one.
    ///
    /// # Panics
    /// Where PostgreSQL is not installed or does not start: the test can't run.
    pub fn create() -> Self {
        static SERVER: OnceLock<Server> = OnceLock::new();
        let server = SERVER.get_or_init(|| started(Server::start()));
        Self { url: started(server.create_database()) }
    }

    /// For `postgres` clients, with the socket's directory as `host`.
    pub fn url(&self) -> &str {
        &self.url
    }
}

#[expect(clippy::panic, reason = "a test without its database can only end")]
fn started<T>(result: anyhow::Result<T>) -> T {
    match result.context("PostgreSQL for tests") {
        Ok(value) => value,
        Err(error) => panic!("{error:?}"),
    }
}

/// A name that no other database of this process has.
fn next_name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("test_{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_is_there_and_another_one_is_another() {
        let (one, other) = (Database::create(), Database::create());
        assert_ne!(one.url(), other.url());
    }

    #[test]
    fn a_server_comes_back_after_a_restart() {
        let server = started(Server::start());
        let url = started(server.create_database());
        started(server.stop());
        assert!(server.create_database().is_err());
        started(server.restart());
        assert_ne!(started(server.create_database()), url);
    }
}
