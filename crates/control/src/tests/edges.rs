//! A real edge at this control plane: it joins, and stays.

use std::time::Duration;

use camino::{Utf8Path, Utf8PathBuf};
use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, Issuer, KeyPair, SanType};
use serde_json::json;
use space_edge::config::{Config, ENVIRONMENT_PREFIX};
use space_enrol::{Identity, Life};
use space_runtime::tasks::Tasks;
use time::OffsetDateTime;

use super::kit::{PATIENCE, World};
use crate::authority::Peer;

/// What an edge leaves on its machine.
struct Home {
    dir: tempfile::TempDir,
    config: Config,
}

impl Home {
    async fn new(world: &World) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let token = world.admin.post("/v1/join-tokens", &json!({"kind": "edge"})).await.expect(201);
        std::fs::write(dir.path().join("token"), token["token"].as_str().unwrap()).unwrap();
        let (path, control) = (dir.path().display(), world.dir.path().display());
        let text = format!(
            "data_dir = '{path}/data'\nlisten = '127.0.0.1:0'\ndomain = 'ports.example'\n\
             [control]\nurl = 'https://{}'\nauthority = '{control}/authority/ca.pem'\njoin_token_file = '{path}/token'\n",
            world.server.registry_address()
        );
        let file = Utf8PathBuf::from_path_buf(dir.path().join("edged.toml")).unwrap();
        std::fs::write(&file, text).unwrap();
        let config = space_runtime::config::load_with(Some(&file), ENVIRONMENT_PREFIX, []).unwrap();
        Self { dir, config }
    }

    /// Starts the edge, does `meanwhile` while it is ready, and stops it.
    async fn serve(&self, meanwhile: impl AsyncFnOnce(&space_edge::Server)) {
        let tasks = Tasks::new();
        let server = space_edge::Server::start(&self.config, &tasks, None).await.unwrap();
        tokio::time::timeout(PATIENCE, server.ready()).await.unwrap();
        meanwhile(&server).await;
        assert!(tasks.finish(PATIENCE).await.is_empty());
    }

    fn identity_dir(&self) -> Utf8PathBuf {
        self.config.data_dir.join("identity")
    }

    fn identity(&self) -> Identity {
        Identity::load(&self.identity_dir()).unwrap().unwrap()
    }

    /// Puts a certificate in place of the one there that is good for a minute more, nearly all of its life.
    fn make_due(&self, world: &World) -> String {
        let authority = Utf8Path::from_path(world.dir.path()).unwrap().join("authority");
        let read = |name: &str| std::fs::read_to_string(authority.join(name)).unwrap();
        let key = KeyPair::from_pem(&read("ca.key.pem")).unwrap();
        let issuer = Issuer::from_ca_cert_pem(&read("ca.pem"), key).unwrap();
        let mut params = CertificateParams::default();
        params.subject_alt_names = vec![SanType::URI(Peer::Edge.uri().try_into().unwrap())];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.not_before = OffsetDateTime::now_utc() - time::Duration::hours(1);
        params.not_after = OffsetDateTime::now_utc() + time::Duration::minutes(1);
        let own = KeyPair::from_pem(&self.identity().key_pem).unwrap();
        let due = params.signed_by(&own, &issuer).unwrap().pem();
        std::fs::write(self.identity_dir().join("certificate.pem"), &due).unwrap();
        due
    }

    /// The certificate as soon as it is another one.
    async fn other_than(&self, old: &str) -> String {
        let end = tokio::time::Instant::now() + PATIENCE;
        // A file that is replaced gives no event here.
        loop {
            let certificate = self.identity().certificate_pem;
            if certificate != old {
                return certificate;
            }
            assert!(tokio::time::Instant::now() < end, "it is not renewed");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// What the edge says of a sandbox that it has to ask control for, and that there is not.
async fn says_of_nothing(edge: &space_edge::Server) -> String {
    let host = format!("80-{}.ports.example", space_types::SandboxId::new().label());
    let request = reqwest::Client::new().get(format!("http://{}/", edge.address())).header("host", host);
    let response = request.timeout(PATIENCE).send().await.unwrap();
    response.headers()["x-space-edge"].to_str().unwrap().to_owned()
}

#[tokio::test]
async fn an_edge_renews_a_certificate_that_is_due_and_is_known_by_the_new_one() {
    let world = World::start().await;
    let home = Home::new(&world).await;
    home.serve(async |edge| assert_eq!(says_of_nothing(edge).await, "port_unauthorized")).await;
    // From here on it can't join again.
    std::fs::remove_file(home.dir.path().join("token")).unwrap();
    let (due, key) = (home.make_due(&world), home.identity().key_pem);
    home.serve(async |edge| {
        let renewed = home.other_than(&due).await;
        assert!(Life::of(&renewed).unwrap().left > Duration::from_hours(20));
        assert_eq!(says_of_nothing(edge).await, "port_unauthorized", "not `edge_unavailable`");
    })
    .await;
    let renewed = home.identity();
    assert_eq!(renewed.key_pem, key, "the key stays");
    home.serve(async |edge| assert_eq!(says_of_nothing(edge).await, "port_unauthorized")).await;
    assert_eq!(home.identity().certificate_pem, renewed.certificate_pem, "it is not due again");
}
