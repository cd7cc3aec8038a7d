//! Renewal of the node's own certificate, for the same key, two thirds into its life.

use std::time::Duration;

use camino::Utf8PathBuf;
use space_node_proto::registry::RenewRequest;
use space_runtime::telemetry::chain;
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

use super::{ControlLink, Identity, KeyError, LinkError, SigningRequest, renewal_instant};

const AGAIN: Duration = Duration::from_secs(30);

#[derive(Debug, thiserror::Error)]
enum RenewError {
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error("cannot keep the new certificate")]
    Store(#[from] std::io::Error),
}

/// Renews for ever; whoever watches `identity` sees the new one. Cancel safe.
pub(crate) async fn renew_forever(
    control: ControlLink,
    identity: watch::Sender<Identity>,
    host: String,
    directory: Utf8PathBuf,
) {
    loop {
        let due = renewal_instant(&identity.borrow().certificate_pem);
        // A certificate that we can't read is one that is due.
        sleep_until(due.unwrap_or_else(|_unreadable| Instant::now())).await;
        let current = identity.borrow().clone();
        match renew(&control, current, &host, &directory).await {
            Ok(renewed) => {
                tracing::info!("the node's certificate was renewed");
                identity.send_replace(renewed);
            }
            Err(error) => tracing::warn!(error = %chain(&error), "cannot renew the node's certificate"),
        }
        // Also after a success, so that a certificate with no life at all does not make a storm.
        sleep_until(Instant::now() + AGAIN).await;
    }
}

async fn renew(
    control: &ControlLink,
    current: Identity,
    host: &str,
    directory: &camino::Utf8Path,
) -> Result<Identity, RenewError> {
    let request = SigningRequest::again(&current.key_pem, host)?;
    let reply = control.renew(RenewRequest { csr_der: request.csr_der }).await?;
    renewal_instant(&reply.certificate_pem)?;
    let renewed = Identity { certificate_pem: reply.certificate_pem, ..current };
    renewed.store_certificate(directory)?;
    Ok(renewed)
}
