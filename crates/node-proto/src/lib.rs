//! Messages and services between SPACE's own processes, generated from `proto/*.proto`. The contract
//! (who calls, idempotency, errors) is written there.

#[allow(clippy::all, clippy::pedantic, unreachable_pub, reason = "generated")]
mod generated {
    tonic::include_proto!("protocols");
}

/// Edge to worker: the output of commands.
pub use generated::space::attach::v1 as attach;
/// Control to worker: commands in a sandbox.
pub use generated::space::commands::v1 as commands;
/// What a node sees of a sandbox.
pub use generated::space::common::v1 as common;
/// Edge to control: enrolment, token keys, routes.
pub use generated::space::edge::v1 as edge;
/// Control to worker: files in a sandbox.
pub use generated::space::files::v1 as files;
/// Control to node: sandboxes.
pub use generated::space::node::v1 as node;
/// Edge to worker: TCP connections to ports of a sandbox.
pub use generated::space::ports::v1 as ports;
/// Node to control: enrolment, lease, reports.
pub use generated::space::registry::v1 as registry;
/// Node to its own worker, over an inherited socket pair.
pub use generated::space::worker::v1 as worker;
