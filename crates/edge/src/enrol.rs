//! How this edge joins: what it sends to control beside what every daemon sends (`space_enrol`).

use std::time::Duration;

use space_enrol::{Asked, Granted, Identity, JoinError, Joining};
use space_node_proto::edge::{EnrolEdgeRequest, edge_client::EdgeClient};

use crate::config::Config;

/// The edge's identity, which it joins for if it has none, or if the one it has expired while it was away.
pub(crate) async fn load_or_join(config: &Config) -> Result<Identity, JoinError> {
    let directory = config.identity_dir();
    let deadline = Duration::from_secs(config.limits.upstream_seconds);
    let joining = Joining { control: &config.control, deadline, directory: &directory, host: None };
    let enrol = async |asked: Asked| {
        let Asked { join_token, csr_der } = asked;
        let call = EnrolEdgeRequest { join_token, csr_der, name: config.name.clone() };
        let reply = EdgeClient::new(joining.connect().await?).enrol_edge(call).await?.into_inner();
        Ok(Granted { certificate_pem: reply.certificate_pem, authority_pem: reply.authority_pem })
    };
    joining.load_or_join(enrol).await
}
