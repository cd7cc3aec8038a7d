//! Joining an installation as a node.

use camino::Utf8Path;
use space_enrol::{Asked, Granted, Identity, JoinError, Joining, write_private};
use space_node_proto::registry::{EnrolReply, EnrolRequest, registry_client::RegistryClient};
use space_types::NodeId;

use crate::{config::NodeConfig, fail_point};

/// Beside the identity: which node this is.
const NODE: &str = "node_id";

/// The node's identity, which it joins for if it has none, or if the one it has expired while it was away. May be
/// repeated after a crash at any instant.
pub(crate) async fn load_or_join(config: &NodeConfig, directory: &Utf8Path) -> Result<Identity, JoinError> {
    let (control, deadline) = (&config.control, config.deadlines.control());
    let host = config.advertised_host();
    let joining = Joining { control, deadline, directory, host: Some(&host) };
    let enrol = async |asked: Asked| {
        let Asked { join_token, csr_der } = asked;
        let (name, address) = (config.name.clone(), config.advertised());
        let call = EnrolRequest { join_token, csr_der, name, address };
        let reply = RegistryClient::new(joining.connect().await?).enrol(call).await?.into_inner();
        fail_point::ENROL_ANSWERED.pass();
        granted(reply, &joining)
    };
    joining.load_or_join(enrol).await
}

/// Keeps the id in the answer.
fn granted(reply: EnrolReply, joining: &Joining<'_>) -> Result<Granted, JoinError> {
    let EnrolReply { node_id, certificate_pem, authority_pem } = reply;
    let node: NodeId = node_id.parse().map_err(|_invalid| JoinError::Answer(node_id))?;
    write_private(joining.directory, NODE, &node.to_string()).map_err(joining.files_error())?;
    tracing::info!(%node, "control knows this node");
    Ok(Granted { certificate_pem, authority_pem })
}

#[cfg(test)]
mod tests {
    use std::{fs, time::Duration};

    use space_enrol::ControlConfig;

    use super::*;

    #[test]
    fn the_id_in_the_answer_is_kept_and_checked() {
        let directory = tempfile::tempdir().unwrap();
        let control: ControlConfig = serde_json::from_str(r#"{"url": "https://127.0.0.1:1"}"#).unwrap();
        let path = Utf8Path::from_path(directory.path()).unwrap();
        let joining =
            Joining { control: &control, deadline: Duration::from_secs(1), directory: path, host: None };
        let reply = |node_id: &str| EnrolReply { node_id: node_id.to_owned(), ..EnrolReply::default() };
        let node = NodeId::new().to_string();
        granted(reply(&node), &joining).unwrap();
        assert_eq!(fs::read_to_string(path.join(NODE)).unwrap(), node);
        let error = granted(reply("sbx_1"), &joining).unwrap_err();
        assert!(matches!(error, JoinError::Answer(id) if id == "sbx_1"));
    }
}
