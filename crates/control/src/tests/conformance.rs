//! The simulated node, by the tests that the real one passes.

use space_node_proto::{
    common::ObservedSandbox,
    node::{EnsureSandboxRequest, node_client::NodeClient},
};
use space_testkit::{
    conformance::{self, Subject},
    sim::SimNode,
};
use space_types::{NodeId, SandboxId, TenantId};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

use super::kit::World;
use crate::authority::Peer;

struct Simulated<'a> {
    world: &'a World,
    node: &'a SimNode,
    tenant: TenantId,
}

impl Simulated<'_> {
    fn id(&self) -> NodeId {
        self.node.id().parse().unwrap()
    }

    /// As control.
    fn channel(&self, peer: Peer, address: &str) -> Channel {
        let certificates = &self.world.app().authority.certificates;
        let control = certificates.control();
        let tls = ClientTlsConfig::new()
            .ca_certificate(Certificate::from_pem(certificates.authority_pem()))
            .identity(Identity::from_pem(&control.certificate_pem, &control.private_key_pem))
            .domain_name(peer.dns_name());
        let endpoint = Endpoint::from_shared(format!("https://{address}")).unwrap();
        endpoint.tls_config(tls).unwrap().connect_lazy()
    }
}

#[tonic::async_trait]
impl Subject for Simulated<'_> {
    fn node(&self) -> NodeClient<Channel> {
        NodeClient::new(self.channel(Peer::Node(self.id()), &self.node.address().to_string()))
    }

    fn request(&self, sandbox: SandboxId, tenant: TenantId) -> EnsureSandboxRequest {
        EnsureSandboxRequest {
            sandbox_id: sandbox.to_string(),
            tenant_id: tenant.to_string(),
            generation: 1,
            fence: 7,
            config: None,
        }
    }

    fn tenant(&self) -> TenantId {
        self.tenant
    }

    async fn worker(&self, seen: &ObservedSandbox, tenant: TenantId) -> Channel {
        self.channel(Peer::Worker(self.id(), tenant), &seen.data_address)
    }
}

#[tokio::test]
async fn the_simulated_node_conforms() {
    let world = World::start().await;
    let node = world.node().await;
    // A node gets a worker's certificate for tenants that have something there.
    world.running().await;
    let tenant = world.app().authenticate(&world.admin.key).await.unwrap().reach().tenant_id;
    conformance::run(&Simulated { world: &world, node: &node, tenant }).await;
}
