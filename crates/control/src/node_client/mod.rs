//! Connections to nodes and to the workers on them: mTLS, one channel a peer, made when first used and kept.
//!
//! The server must present the certificate of exactly the node (and tenant) that is meant: the name to verify is
//! made from their ids (see `authority/certificates.rs`), never from the address.

mod channels;
mod nodes;
mod workers;

pub(crate) use nodes::Nodes;
pub(crate) use workers::Workers;
