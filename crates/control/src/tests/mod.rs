//! The whole control plane on a real PostgreSQL, with simulated nodes. Each test has a database of its own.

mod auth;
mod authorisation;
mod commands;
mod events;
mod faults;
mod files;
mod idempotency;
mod keys;
mod kit;
mod nodes;
mod openapi;
mod ports;
mod problems;
mod projects;
mod quotas;
mod sandboxes;
mod terminal;
