//! Calls to space-noded.

use std::time::Duration;

use space_node_proto::{
    common::ObservedSandbox,
    node::{
        EnsureSandboxRequest, ListSandboxesRequest, RemoveSandboxRequest, SandboxConfig, TemplateArtifact,
        node_client::NodeClient,
    },
};
use space_types::{NodeId, SandboxId};
use tokio::time::timeout;
use tonic::{Status, transport::Channel};

use super::channels::Channels;
use crate::{
    authority::{Certificates, Peer},
    store::{nodes::NodeContact, sandboxes::SandboxWork},
};

/// A list of all sandboxes of a node, with room for 10,000.
const LIST_BYTES: usize = 32 * 1024 * 1024;

pub(crate) struct Nodes(Channels<(NodeId, String)>);

impl Nodes {
    pub(crate) fn new(certificates: &Certificates, connect_timeout: Duration) -> Self {
        Self(Channels::new(certificates, connect_timeout))
    }

    fn client(&self, id: NodeId, address: &str) -> Result<NodeClient<Channel>, Status> {
        let channel = self.0.get(&(id, address.to_owned()), Peer::Node(id), address);
        let channel =
            channel.map_err(|error| Status::unavailable(format!("bad address {address:?}: {error}")))?;
        Ok(NodeClient::new(channel).max_decoding_message_size(LIST_BYTES))
    }

    pub(crate) async fn ensure(
        &self,
        work: &SandboxWork,
        deadline: Duration,
    ) -> Result<ObservedSandbox, Status> {
        let mut client = self.client(work.node_id, &work.node_address)?;
        let request = EnsureSandboxRequest {
            sandbox_id: work.id.to_string(),
            tenant_id: work.tenant_id.to_string(),
            generation: work.generation,
            fence: work.fence,
            config: Some(SandboxConfig {
                vcpus: work.vcpus,
                memory_bytes: work.memory.as_bytes(),
                disk_bytes: work.disk.as_bytes(),
                template: Some(TemplateArtifact {
                    digest: work.digest.to_string(),
                    location: work.location.clone(),
                    size_bytes: work.image_size,
                }),
                hostname: work.id.label(),
                env: work.env.clone().into_iter().collect(),
            }),
        };
        let reply = timeout(deadline, client.ensure_sandbox(request)).await.map_err(|_elapsed| late())??;
        Ok(reply.into_inner())
    }

    pub(crate) async fn remove(
        &self,
        node: &NodeContact,
        id: SandboxId,
        generation: u64,
        deadline: Duration,
    ) -> Result<(), Status> {
        let mut client = self.client(node.id, &node.address)?;
        let request = RemoveSandboxRequest { sandbox_id: id.to_string(), generation, fence: node.fence };
        timeout(deadline, client.remove_sandbox(request)).await.map_err(|_elapsed| late())??;
        Ok(())
    }

    pub(crate) async fn list(
        &self,
        node: &NodeContact,
        deadline: Duration,
    ) -> Result<Vec<ObservedSandbox>, Status> {
        let mut client = self.client(node.id, &node.address)?;
        let reply = timeout(deadline, client.list_sandboxes(ListSandboxesRequest {}))
            .await
            .map_err(|_elapsed| late())??;
        Ok(reply.into_inner().sandboxes)
    }
}

fn late() -> Status {
    Status::deadline_exceeded("the node took too long")
}
