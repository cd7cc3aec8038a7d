//! Channels to space-sandboxd workers.

use std::time::Duration;

use space_node_proto::{commands::commands_client::CommandsClient, files::files_client::FilesClient};
use space_types::{NodeId, TenantId};
use tonic::transport::Channel;

use super::channels::Channels;
use crate::{
    authority::{Certificates, Peer},
    store::sandboxes::Route,
};

/// A list with every command that a guest remembers, and each of them as large as may be.
const LARGEST_REPLY: usize = 8 << 20;
/// A page of files, each with the longest path and link.
const LARGEST_PAGE: usize = 16 << 20;

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
        Ok(CommandsClient::new(self.channel(route)?).max_decoding_message_size(LARGEST_REPLY))
    }

    pub(crate) fn files(&self, route: &Route) -> Result<FilesClient<Channel>, tonic::transport::Error> {
        Ok(FilesClient::new(self.channel(route)?).max_decoding_message_size(LARGEST_PAGE))
    }

    fn channel(&self, route: &Route) -> Result<Channel, tonic::transport::Error> {
        let peer = Peer::Worker(route.node_id, route.tenant_id);
        self.0.get(&WorkerKey::of(route), peer, &route.data_address)
    }

    /// After a broken connection.
    pub(crate) fn forget(&self, route: &Route) {
        self.0.forget(&WorkerKey::of(route));
    }
}
