//! Renewal of a daemon's own certificate, for the same key, two thirds into its life.

use std::{error::Error, io, time::Duration};

use camino::Utf8Path;
use space_runtime::telemetry::chain;
use tokio::{sync::watch, time::sleep};

use crate::{Identity, KeyError, Life, signing_request};

const AGAIN: Duration = Duration::from_secs(30);

#[derive(Debug, thiserror::Error)]
enum RenewError<E: Error + 'static> {
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error("control did not renew it")]
    Ask(#[source] E),
    #[error("cannot keep the new certificate")]
    Store(#[source] io::Error),
}

/// Renews for ever; whoever watches `identity` sees the new one. `ask` sends control a signing request, for a server at
/// `host` if it is one, and answers with the certificate, PEM. Cancel safe.
pub async fn renew_forever<E, F>(
    identity: watch::Sender<Identity>,
    host: Option<String>,
    directory: impl AsRef<Utf8Path>,
    ask: impl Fn(Vec<u8>) -> F,
) where
    E: Error + 'static,
    F: Future<Output = Result<String, E>>,
{
    loop {
        // A certificate that we can't read is one that is due.
        let life = Life::of(&identity.borrow().certificate_pem);
        sleep(life.map_or(Duration::ZERO, |life| life.until_renewal)).await;
        let current = identity.borrow().clone();
        match renew(current, host.as_deref(), directory.as_ref(), &ask).await {
            Ok(renewed) => {
                tracing::info!("the certificate was renewed");
                identity.send_replace(renewed);
            }
            Err(error) => tracing::warn!(error = %chain(&error), "cannot renew the certificate"),
        }
        // Also after a success, so that a certificate with no life at all does not make a storm.
        sleep(AGAIN).await;
    }
}

async fn renew<E, F>(
    current: Identity,
    host: Option<&str>,
    directory: &Utf8Path,
    ask: impl Fn(Vec<u8>) -> F,
) -> Result<Identity, RenewError<E>>
where
    E: Error + 'static,
    F: Future<Output = Result<String, E>>,
{
    let certificate_pem = ask(signing_request(&current.key_pem, host)?).await.map_err(RenewError::Ask)?;
    Life::of(&certificate_pem)?;
    let renewed = Identity { certificate_pem, ..current };
    renewed.store_certificate(directory).map_err(RenewError::Store)?;
    Ok(renewed)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use rcgen::{CertificateParams, KeyPair};
    use time::OffsetDateTime;
    use tokio::time::{Instant, timeout};

    use super::*;

    /// Good from an hour ago for `minutes` more.
    fn certificate(key_pem: &str, minutes: i64) -> String {
        let mut params = CertificateParams::default();
        params.not_before = OffsetDateTime::now_utc() - time::Duration::hours(1);
        params.not_after = OffsetDateTime::now_utc() + time::Duration::minutes(minutes);
        params.self_signed(&KeyPair::from_pem(key_pem).unwrap()).unwrap().pem()
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_refused_asks_again_and_keeps_what_is_good_until_it_is_due() {
        let directory = tempfile::tempdir().unwrap();
        let path = Utf8Path::from_path(directory.path()).unwrap();
        let key_pem = crate::new_key().unwrap();
        let (due, new) = (certificate(&key_pem, 20), certificate(&key_pem, 60 * 24 * 30));
        let authority_pem = "authority".to_owned();
        let identity = Identity { key_pem: key_pem.clone(), certificate_pem: due, authority_pem };
        Identity::store_key(path, &key_pem).unwrap();
        identity.store(path).unwrap();
        let (sender, watched) = watch::channel(identity);
        let (begun, asked_at) = (Instant::now(), RefCell::new(Vec::new()));
        let answers = [Err(io::Error::other("no")), Ok("nonsense".to_owned()), Ok(new.clone())];
        let answers = RefCell::new(answers.into_iter());
        let renewing = renew_forever(sender, None, path, |csr_der| {
            assert!(!csr_der.is_empty());
            asked_at.borrow_mut().push(begun.elapsed().as_secs());
            let answer = answers.borrow_mut().next().expect("the last certificate is not due yet");
            async { answer }
        });
        timeout(Duration::from_hours(24), renewing).await.unwrap_err();
        assert_eq!(asked_at.into_inner(), [0, 30, 60]);
        assert_eq!(watched.borrow().certificate_pem, new);
        assert_eq!(Identity::load(path).unwrap().unwrap().certificate_pem, new);
    }
}
