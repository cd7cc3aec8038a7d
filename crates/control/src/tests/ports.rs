//! Ports: settings and tokens through the API, and what edges are told.

use std::sync::Arc;

use rcgen::{CertificateParams, KeyPair};
use reqwest::Method;
use serde_json::json;
use space_node_proto::{
    edge::{
        EnrolEdgeRequest, GetTokenKeysRequest, RenewEdgeRequest, ResolvePortReply, ResolvePortRequest,
        ResolveSandboxReply, ResolveSandboxRequest, edge_client::EdgeClient,
    },
    registry::{EnrolRequest, RenewRequest, registry_client::RegistryClient},
};
use space_testkit::{postgres::Database, sim};
use tonic::{
    Code, Status,
    transport::{Channel, Identity},
};

use super::kit::{Answer, Client, World};

/// Whoever asks the registry.
struct Asker {
    key: KeyPair,
    channel: Channel,
}

impl Asker {
    fn stranger(world: &World) -> Self {
        Self { key: KeyPair::generate().unwrap(), channel: channel(world, None) }
    }

    /// With a certificate that names what `sign` says.
    fn with(world: &World, sign: impl FnOnce(&crate::authority::Certificates, &[u8]) -> String) -> Self {
        let key = KeyPair::generate().unwrap();
        let app = Arc::clone(world.app());
        let certificate = sign(&app.authority.certificates, &request(&key));
        let identity = Identity::from_pem(certificate, key.serialize_pem());
        Self { channel: channel(world, Some(identity)), key }
    }

    fn edge(world: &World) -> Self {
        Self::with(world, |authority, csr| authority.sign_edge(csr).unwrap())
    }

    fn edges(&self) -> EdgeClient<Channel> {
        EdgeClient::new(self.channel.clone())
    }

    async fn enrol(&self, token: &str) -> Result<String, Status> {
        let request = EnrolEdgeRequest {
            join_token: token.to_owned(),
            csr_der: request(&self.key),
            name: "edge-1".to_owned(),
        };
        Ok(self.edges().enrol_edge(request).await?.into_inner().certificate_pem)
    }

    async fn resolve(&self, sandbox: &str, port: u32) -> Result<ResolvePortReply, Status> {
        let request = ResolvePortRequest { sandbox_id: sandbox.to_owned(), port };
        Ok(self.edges().resolve_port(request).await?.into_inner())
    }

    async fn resolve_sandbox(&self, sandbox: &str) -> Result<ResolveSandboxReply, Status> {
        let request = ResolveSandboxRequest { sandbox_id: sandbox.to_owned() };
        Ok(self.edges().resolve_sandbox(request).await?.into_inner())
    }
}

fn request(key: &KeyPair) -> Vec<u8> {
    CertificateParams::default().serialize_request(key).unwrap().der().to_vec()
}

fn channel(world: &World, identity: Option<Identity>) -> Channel {
    let authority = world.app().authority.certificates.authority_pem().to_owned();
    sim::channel(world.server.registry_address(), &authority, identity).unwrap()
}

async fn token(world: &World, body: serde_json::Value) -> String {
    let made = world.admin.post("/v1/join-tokens", &body).await.expect(201);
    made["token"].as_str().unwrap().to_owned()
}

async fn put(client: &Client, path: &str, body: &serde_json::Value) -> Answer {
    Client::send(client.request(Method::PUT, path).json(body)).await
}

#[tokio::test]
async fn a_port_is_private_until_it_is_made_public() {
    let world = World::start().await;
    let _node = world.node().await;
    let sandbox = world.running().await;
    let edge = Asker::edge(&world);
    let path = format!("/v1/sandboxes/{sandbox}/ports");
    let port = world.admin.get(&format!("{path}/8000")).await.expect(200);
    let label = sandbox.strip_prefix("sbx_").unwrap();
    assert_eq!(
        port,
        json!({"port": 8000, "visibility": "private", "url": format!("http://8000-{label}.localhost:8710")})
    );
    assert!(!edge.resolve(&sandbox, 8000).await.unwrap().public);
    put(&world.admin, &format!("{path}/8000"), &json!({"visibility": "public"})).await.expect(200);
    let resolved = edge.resolve(&sandbox, 8000).await.unwrap();
    assert!(resolved.public && resolved.state == "running");
    let route = resolved.route.unwrap();
    assert!(route.generation == 1 && !route.worker_address.is_empty(), "{route:?}");
    assert!(!edge.resolve(&sandbox, 8001).await.unwrap().public);
    assert_eq!(edge.resolve_sandbox(&sandbox).await.unwrap().route.unwrap(), route);
    // Pages go by number.
    put(&world.admin, &format!("{path}/80"), &json!({"visibility": "private"})).await.expect(200);
    let page = world.admin.get(&format!("{path}?limit=1")).await.expect(200);
    assert_eq!(page["items"][0]["port"], 80);
    let cursor = page["next_cursor"].as_str().unwrap();
    let page = world.admin.get(&format!("{path}?cursor={cursor}")).await.expect(200);
    assert_eq!((page["items"].as_array().unwrap().len(), &page["items"][0]["port"]), (1, &json!(8000)));
}

#[tokio::test]
async fn what_is_no_port_or_setting_is_named() {
    let world = World::start().await;
    let _node = world.node().await;
    let path = format!("/v1/sandboxes/{}/ports", world.running().await);
    for port in ["0", "65536", "080", "http"] {
        let answer = world.admin.get(&format!("{path}/{port}")).await;
        answer.problem(422, "invalid_field");
        assert_eq!(answer.body["field"], "port");
    }
    let answer = world.admin.post(&format!("{path}/80/tokens"), &json!({"valid_seconds": 2_592_001})).await;
    answer.problem(422, "invalid_field");
    assert_eq!(answer.body["field"], "valid_seconds");
    let answer = put(&world.admin, &format!("{path}/80"), &json!({"visibility": "secret"})).await;
    assert!((400..500).contains(&answer.status), "{}", answer.body);
    assert_eq!(world.count("sandbox_ports").await, 0);
}

#[tokio::test]
async fn a_token_names_its_port_and_is_void_once_revoked() {
    let world = World::start().await;
    let _node = world.node().await;
    let sandbox = world.running().await;
    let edge = Asker::edge(&world);
    let path = format!("/v1/sandboxes/{sandbox}/ports/8000/tokens");
    let made = world.admin.post_with_key(&path, &json!({}), "once").await.expect(201);
    let (token, url) = (made["token"].as_str().unwrap(), made["url"].as_str().unwrap());
    assert_eq!(made["link"], format!("{url}/?space_port_token={token}"));
    assert_eq!(made["header"], "X-Space-Port-Token");
    assert!(token.starts_with("space_port_"));
    // A repetition shows no secret.
    let again = world.admin.post_with_key(&path, &json!({}), "once").await.expect(201);
    assert!(again.get("token").is_none() && again.get("link").is_none());
    assert_eq!((&again["url"], &again["expires_at"]), (&made["url"], &made["expires_at"]));
    assert_eq!(edge.resolve(&sandbox, 8000).await.unwrap().epoch, 0);
    for epoch in 1..3 {
        world.admin.delete(&path).await.expect(204);
        assert_eq!(edge.resolve(&sandbox, 8000).await.unwrap().epoch, epoch);
    }
    assert_eq!(edge.resolve(&sandbox, 8001).await.unwrap().epoch, 0);
}

#[tokio::test]
async fn a_deleted_sandbox_has_no_ports() {
    let world = World::start().await;
    let _node = world.node().await;
    let sandbox = world.running().await;
    let edge = Asker::edge(&world);
    let path = format!("/v1/sandboxes/{sandbox}/ports/8000");
    put(&world.admin, &path, &json!({"visibility": "public"})).await.expect(200);
    world.admin.delete(&format!("/v1/sandboxes/{sandbox}?wait=60")).await.expect(200);
    assert_eq!(world.count("sandbox_ports").await, 0);
    assert_eq!(edge.resolve(&sandbox, 8000).await.unwrap_err().code(), Code::NotFound);
    assert_eq!(edge.resolve_sandbox(&sandbox).await.unwrap_err().code(), Code::NotFound);
    put(&world.admin, &path, &json!({"visibility": "public"})).await.problem(404, "not_found");
    let never = space_types::SandboxId::new().to_string();
    assert_eq!(edge.resolve(&never, 8000).await.unwrap_err().code(), Code::NotFound);
    for (id, port) in [("x", 80), (never.as_str(), 0), (never.as_str(), 65_536)] {
        assert_eq!(edge.resolve(id, port).await.unwrap_err().code(), Code::InvalidArgument);
    }
    assert_eq!(edge.resolve_sandbox(&never).await.unwrap_err().code(), Code::NotFound);
    assert_eq!(edge.resolve_sandbox("x").await.unwrap_err().code(), Code::InvalidArgument);
}

#[tokio::test]
async fn an_installation_without_an_edge_says_so() {
    let world = World::with(Database::create().url(), "[ports]\n").await;
    let _node = world.node().await;
    let path = format!("/v1/sandboxes/{}/ports", world.running().await);
    world.admin.get(&path).await.problem(501, "ports_not_configured");
    world.admin.post(&format!("{path}/80/tokens"), &json!({})).await.problem(501, "ports_not_configured");
}

#[tokio::test]
async fn an_edge_joins_once_with_a_token_of_its_kind() {
    let world = World::start().await;
    let (one, two) = (Asker::stranger(&world), Asker::stranger(&world));
    let for_node = token(&world, json!({})).await;
    assert_eq!(one.enrol(&for_node).await.unwrap_err().code(), Code::Unauthenticated);
    let for_edge = token(&world, json!({"kind": "edge"})).await;
    let node = EnrolRequest {
        join_token: for_edge.clone(),
        csr_der: request(&one.key),
        name: "node-9".to_owned(),
        address: "127.0.0.1:1".to_owned(),
    };
    let refused = RegistryClient::new(one.channel.clone()).enrol(node).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated);
    let certificate = one.enrol(&for_edge).await.unwrap();
    // Its answer was lost.
    one.enrol(&for_edge).await.unwrap();
    assert_eq!(two.enrol(&for_edge).await.unwrap_err().code(), Code::Unauthenticated);
    let joined = Asker {
        channel: channel(&world, Some(Identity::from_pem(certificate, one.key.serialize_pem()))),
        ..one
    };
    let keys = joined.edges().get_token_keys(GetTokenKeysRequest {}).await.unwrap().into_inner();
    assert_eq!(keys.ed25519, [world.app().authority.attach.public_key()]);
    joined.edges().renew_edge(RenewEdgeRequest { csr_der: request(&joined.key) }).await.unwrap();
}

#[tokio::test]
async fn edges_and_nodes_may_not_make_each_others_calls() {
    let world = World::start().await;
    let edge = Asker::edge(&world);
    let renew = RenewRequest { csr_der: request(&edge.key) };
    let refused = RegistryClient::new(edge.channel.clone()).renew(renew).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    let node =
        Asker::with(&world, |authority, csr| authority.sign_node(space_types::NodeId::new(), csr).unwrap());
    let id = space_types::SandboxId::new().to_string();
    for (who, code) in [(node, Code::PermissionDenied), (Asker::stranger(&world), Code::Unauthenticated)] {
        assert_eq!(who.resolve(&id, 80).await.unwrap_err().code(), code);
        assert_eq!(who.resolve_sandbox(&id).await.unwrap_err().code(), code);
        let renew = RenewEdgeRequest { csr_der: request(&who.key) };
        assert_eq!(who.edges().renew_edge(renew).await.unwrap_err().code(), code);
        assert_eq!(who.edges().get_token_keys(GetTokenKeysRequest {}).await.unwrap_err().code(), code);
    }
}

#[tokio::test]
async fn a_join_token_in_a_file_is_good_for_an_edge() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("edge.token");
    let world = World::start().await;
    let file = camino::Utf8PathBuf::from_path_buf(path.clone()).unwrap();
    world.app().write_join_token(space_api::nodes::JoinTokenKind::Edge, &file).await.unwrap();
    let token = std::fs::read_to_string(path).unwrap();
    Asker::stranger(&world).enrol(token.trim()).await.unwrap();
}
