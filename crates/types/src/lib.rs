//! Pure rules: what things are called, how large they may be, and how a sandbox's state follows from what
//! was wanted and what was seen. Everything here is a total function of its arguments; no clock, no I/O.

mod attach_token;
mod byte_size;
mod id;
mod lifecycle;
mod machine_class;
mod port_host;
mod port_token;
mod reason;
mod template_ref;
mod uid_range;

pub use attach_token::AttachClaims;
pub use byte_size::ByteSize;
pub use id::{
    CommandId, EventId, KeyId, NodeId, OperationId, ParseIdError, ProjectId, ReleaseId, SandboxId, TenantId,
};
pub use lifecycle::{Desired, Observed, SandboxState, shown_state};
pub use machine_class::{MACHINE_CLASSES, MachineClass, MachineClassError};
pub use port_host::PortHost;
pub use port_token::PortClaims;
pub use reason::Reason;
pub use template_ref::{Digest, ParseTemplateRefError, TemplateRef};
pub use uid_range::{UidRange, VM_UIDS, WORKER_UIDS};
