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
        Ok(CommandsClient::new(channel))
    }

    /// After a broken connection.
    pub(crate) fn forget(&self, route: &Route) {
        self.0.forget(&WorkerKey::of(route));
    }
}
