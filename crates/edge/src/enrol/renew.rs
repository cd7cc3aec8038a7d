//! Renewal of the edge's certificate, for the same key, two thirds into its life.

use std::time::Duration;

use camino::Utf8PathBuf;
use space_runtime::telemetry::chain;
use tokio::{sync::watch, time::sleep};

use super::{
    Identity, KeyError,
    certificate::{Life, signing_request},
};
use crate::control::{ControlError, ControlLink};

const AGAIN: Duration = Duration::from_secs(30);

#[derive(Debug, thiserror::Error)]
enum RenewError {
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error(transparent)]
    Control(#[from] ControlError),
    #[error("cannot keep the new certificate")]
    Store(#[from] std::io::Error),
}

/// Renews for ever; whoever watches `identity` sees the new one. Cancel safe.
pub(crate) async fn renew_forever(
    control: ControlLink,
    identity: watch::Sender<Identity>,
    directory: Utf8PathBuf,
) {
    loop {
        // A certificate that we can't read is one that is due.
        let due =
            Life::of(&identity.borrow().certificate_pem).map_or(Duration::ZERO, |life| life.until_renewal);
        sleep(due).await;
        let current = identity.borrow().clone();
        match renew(&control, current, &directory).await {
            Ok(renewed) => {
                tracing::info!("the edge's certificate was renewed");
                identity.send_replace(renewed);
            }
            Err(error) => tracing::warn!(error = %chain(&error), "cannot renew the edge's certificate"),
        }
        // Also after a success, so that a certificate with no life at all does not make a storm.
        sleep(AGAIN).await;
    }
}

async fn renew(
    control: &ControlLink,
    current: Identity,
    directory: &camino::Utf8Path,
) -> Result<Identity, RenewError> {
    let certificate_pem = control.renew(signing_request(&current.key_pem)?).await?;
    Life::of(&certificate_pem)?;
    let renewed = Identity { certificate_pem, ..current };
    renewed.store(directory)?;
    Ok(renewed)
}
