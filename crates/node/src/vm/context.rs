//! What every owner task needs, made once at the start.

use std::sync::Arc;

use super::{Ledger, Observations};
use crate::{
    config::NodeConfig,
    image::ImageStore,
    journal::Journal,
    place::Layout,
    slot::{Releaser, SlotPool},
    worker::Workers,
};

#[derive(Debug)]
pub(crate) struct NodeContext {
    pub(crate) config: Arc<NodeConfig>,
    pub(crate) layout: Layout,
    /// Of the Firecracker that new VMs run.
    pub(crate) vmm_version: String,
    pub(crate) journal: Journal,
    pub(crate) images: ImageStore,
    pub(crate) pool: SlotPool,
    pub(crate) releaser: Releaser,
    pub(crate) workers: Workers,
    pub(crate) ledger: Ledger,
    pub(crate) observations: Observations,
}
