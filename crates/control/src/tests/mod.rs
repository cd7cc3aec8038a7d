//! The whole control plane on a real PostgreSQL, with simulated nodes. Each test has a database of its own.

mod auth;
mod authorisation;
mod chaos;
mod commands;
mod conformance;
mod edges;
mod events;
mod faults;
mod files;
mod hostile;
mod idempotency;
mod keys;
mod kit;
mod nodes;
mod openapi;
mod ports;
mod problems;
mod projects;
mod python;
mod quotas;
mod rate_limits;
mod sandboxes;
mod terminal;
mod usage;
