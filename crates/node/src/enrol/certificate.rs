//! Keys, signing requests, and how long a certificate lives.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::{CertificateParams, DistinguishedName, KeyPair};
use tokio::time::Instant;
use x509_parser::pem::parse_x509_pem;

#[derive(Debug, thiserror::Error)]
pub(crate) enum KeyError {
    #[error("cannot make a key and its signing request")]
    Make(#[from] rcgen::Error),
    #[error("the certificate does not parse")]
    Certificate,
}

/// A fresh private key, PEM.
pub(crate) fn new_key() -> Result<String, KeyError> {
    Ok(KeyPair::generate()?.serialize_pem())
}

/// A key and the request that asks control to sign it.
pub(crate) struct SigningRequest {
    pub(crate) key_pem: String,
    pub(crate) csr_der: Vec<u8>,
}

impl SigningRequest {
    /// For a fresh key and a server at `host`, a name or an address. Who it *is* gets decided by whoever signs.
    pub(crate) fn new(host: &str) -> Result<Self, KeyError> {
        Self::with_key(&KeyPair::generate()?, host)
    }

    /// As [`Self::new`], for a key that exists.
    pub(crate) fn again(key_pem: &str, host: &str) -> Result<Self, KeyError> {
        Self::with_key(&KeyPair::from_pem(key_pem)?, host)
    }

    fn with_key(key: &KeyPair, host: &str) -> Result<Self, KeyError> {
        let mut params = CertificateParams::new(vec![host.to_owned()])?;
        params.distinguished_name = DistinguishedName::new();
        let csr = params.serialize_request(key)?;
        Ok(Self { key_pem: key.serialize_pem(), csr_der: csr.der().to_vec() })
    }
}

/// When two thirds of the life of the first certificate in `pem` will be over; now, if they are.
pub(crate) fn renewal_instant(pem: &str) -> Result<Instant, KeyError> {
    let (from, to) = validity(pem)?;
    Ok(Instant::now() + until_renewal(from, to, now()))
}

/// How much longer the first certificate in `pem` is good; zero, if it isn't any more.
pub(crate) fn time_left(pem: &str) -> Result<Duration, KeyError> {
    let (_, to) = validity(pem)?;
    Ok(Duration::from_secs(u64::try_from(to.saturating_sub(now())).unwrap_or(0)))
}

/// Unix seconds.
fn validity(pem: &str) -> Result<(i64, i64), KeyError> {
    let (_, pem) = parse_x509_pem(pem.as_bytes()).map_err(|_invalid| KeyError::Certificate)?;
    let certificate = pem.parse_x509().map_err(|_invalid| KeyError::Certificate)?;
    let validity = certificate.validity();
    Ok((validity.not_before.timestamp(), validity.not_after.timestamp()))
}

fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs().cast_signed()
}

fn until_renewal(from: i64, to: i64, now: i64) -> Duration {
    let due = from.saturating_add(to.saturating_sub(from) / 3 * 2);
    Duration::from_secs(u64::try_from(due.saturating_sub(now)).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renewal_is_two_thirds_into_the_life() {
        assert_eq!(until_renewal(0, 300, 100), Duration::from_secs(100));
        assert_eq!(until_renewal(0, 300, 250), Duration::ZERO);
    }

    #[test]
    fn a_request_names_its_host() {
        let request = SigningRequest::new("127.0.0.1").unwrap();
        assert!(request.key_pem.contains("PRIVATE KEY"));
        assert!(request.csr_der.windows(4).any(|window| window == [127, 0, 0, 1]));
    }
}
