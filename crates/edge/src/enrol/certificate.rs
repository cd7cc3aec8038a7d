//! The key, the request to certify it, and how long a certificate lives.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::{CertificateParams, DistinguishedName, KeyPair};
use x509_parser::pem::parse_x509_pem;

#[derive(Debug, thiserror::Error)]
pub(crate) enum KeyError {
    #[error("cannot make a key and its signing request")]
    Make(#[from] rcgen::Error),
    #[error("the certificate does not parse")]
    Certificate,
}

pub(super) fn new_key() -> Result<String, KeyError> {
    Ok(KeyPair::generate()?.serialize_pem())
}

/// DER. Who the edge *is* gets decided by whoever signs.
pub(super) fn signing_request(key_pem: &str) -> Result<Vec<u8>, KeyError> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    Ok(params.serialize_request(&KeyPair::from_pem(key_pem)?)?.der().to_vec())
}

/// What is left of the life of the first certificate in `pem`, and of the two thirds after which it is renewed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Life {
    pub(super) left: Duration,
    pub(super) until_renewal: Duration,
}

impl Life {
    pub(super) fn of(pem: &str) -> Result<Self, KeyError> {
        let (_, pem) = parse_x509_pem(pem.as_bytes()).map_err(|_invalid| KeyError::Certificate)?;
        let certificate = pem.parse_x509().map_err(|_invalid| KeyError::Certificate)?;
        let validity = certificate.validity();
        Ok(Self::at(validity.not_before.timestamp(), validity.not_after.timestamp(), unix_now()))
    }

    /// All in Unix seconds.
    fn at(from: i64, to: i64, now: i64) -> Self {
        let until =
            |instant: i64| Duration::from_secs(u64::try_from(instant.saturating_sub(now)).unwrap_or(0));
        let renewal = from.saturating_add(to.saturating_sub(from) / 3 * 2);
        Self { left: until(to), until_renewal: until(renewal) }
    }
}

/// Unix seconds.
pub(crate) fn unix_now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs().cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renewal_is_two_thirds_into_the_life() {
        let seconds = |life: Life| (life.left.as_secs(), life.until_renewal.as_secs());
        assert_eq!(seconds(Life::at(0, 300, 100)), (200, 100));
        assert_eq!(seconds(Life::at(0, 300, 250)), (50, 0));
        assert_eq!(seconds(Life::at(0, 300, 301)), (0, 0));
    }
}
