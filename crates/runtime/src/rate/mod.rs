//! How fast requests may come, of each of very many owners: token buckets, a bounded number of them.
//!
//! All of it is in this process's memory; a limit that replicas share would cost each request what it is there to
//! protect.

mod bucket;
mod buckets;
mod peer_address;

pub use bucket::{Bucket, Rate};
pub use buckets::Buckets;
pub use peer_address::PeerAddress;
