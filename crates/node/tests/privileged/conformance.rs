//! The real node with its worker and a real guest, by the tests that the simulated one passes as well.

use space_node_proto::{common::ObservedSandbox, node::EnsureSandboxRequest, node::node_client::NodeClient};
use space_testkit::conformance::{self, Subject};
use space_types::{SandboxId, TenantId};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

use crate::{
    kit::{Kit, PATIENCE},
    registry::WORKER_DNS,
};

#[tonic::async_trait]
impl Subject for Kit {
    fn node(&self) -> NodeClient<Channel> {
        self.client()
    }

    fn request(&self, sandbox: SandboxId, tenant: TenantId) -> EnsureSandboxRequest {
        let tenant_id = tenant.to_string();
        EnsureSandboxRequest { tenant_id, ..Kit::request(self, sandbox) }
    }

    fn tenant(&self) -> TenantId {
        TenantId::new()
    }

    async fn worker(&self, seen: &ObservedSandbox, _tenant: TenantId) -> Channel {
        let control = self.caller("spiffe://space/control");
        let tls = ClientTlsConfig::new()
            .ca_certificate(Certificate::from_pem(self.authority_pem()))
            .identity(Identity::from_pem(&control.certificate, &control.key))
            .domain_name(WORKER_DNS);
        let endpoint = Endpoint::from_shared(format!("https://{}", seen.data_address)).unwrap();
        endpoint.tls_config(tls).unwrap().connect_timeout(PATIENCE).connect_lazy()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_real_node_passes_the_conformance_tests() {
    let mut kit = Kit::started().await;
    conformance::run(&kit).await;
    kit.stop();
    kit.nothing_is_left();
}
