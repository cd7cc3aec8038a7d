//! Channels to space-sandboxd workers.

use std::time::Duration;

use space_node_proto::commands::commands_client::CommandsClient;
use space_types::{NodeId, TenantId};
use tonic::transport::Channel;

use super::channels::Channels;
use crate::{
    authority::{Certificates, Peer},
    store::sandboxes::Route,
};

/// A list with every command that a guest remembers, and each of them as large as may be.
const LARGEST_REPLY: usize = 8 << 20;

/// One worker, at one address.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct WorkerKey {
    node_id: NodeId,
    tenant_id: TenantId,
    address: String,
}

impl WorkerKey {
    fn of(route: &Route) -> Self {
        Self { node_id: route.node_id, tenant_id: route.tenant_id, address: route.data_address.clone() }
    }
}

pub(crate) struct Workers(Channels<WorkerKey>);

impl Workers {
    pub(crate) fn new(certificates: &Certificates, connect_timeout: Duration) -> Self {
        Self(Channels::new(certificates, connect_timeout))
    }

    pub(crate) fn client(&self, route: &Route) -> Result<CommandsClient<Channel>, tonic::transport::Error> {
        let key = WorkerKey::of(route);
        let channel = self.0.get(&key, Peer::Worker(route.node_id, route.tenant_id), &route.data_address)?;
        Ok(CommandsClient::new(channel).max_decoding_message_size(LARGEST_REPLY))
    }

    /// After a broken connection.
    pub(crate) fn forget(&self, route: &Route) {
        self.0.forget(&WorkerKey::of(route));
    }
}
