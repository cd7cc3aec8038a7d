//! Keys, signing requests, and how long a certificate lives.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::{CertificateParams, DistinguishedName, KeyPair};
use x509_parser::pem::parse_x509_pem;

#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("cannot make a key and its signing request")]
    Make(#[from] rcgen::Error),
    #[error("the certificate does not parse")]
    Certificate,
}

/// A fresh private key, PEM.
pub fn new_key() -> Result<String, KeyError> {
    Ok(KeyPair::generate()?.serialize_pem())
}

/// The request, DER, that asks control to certify a key: of a server at `host`, a name or an address, if it is one. Who
/// it *is* gets decided by whoever signs.
pub fn signing_request(key_pem: &str, host: Option<&str>) -> Result<Vec<u8>, KeyError> {
    let hosts: Vec<String> = host.map(str::to_owned).into_iter().collect();
    let mut params = CertificateParams::new(hosts)?;
    params.distinguished_name = DistinguishedName::new();
    Ok(params.serialize_request(&KeyPair::from_pem(key_pem)?)?.der().to_vec())
}

/// What is left of the life of a certificate, and of the two thirds of it after which it is renewed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Life {
    /// Zero: it has expired.
    pub left: Duration,
    /// Zero: it is due.
    pub until_renewal: Duration,
}

impl Life {
    /// Of the first certificate in `pem`, from now on.
    pub fn of(pem: &str) -> Result<Self, KeyError> {
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

fn unix_now() -> i64 {
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

    #[test]
    fn a_request_names_its_host_if_it_has_one() {
        let key = new_key().unwrap();
        assert!(key.contains("PRIVATE KEY"));
        let names = |csr: &[u8]| csr.windows(4).any(|window| window == [127, 0, 0, 1]);
        assert!(names(&signing_request(&key, Some("127.0.0.1")).unwrap()));
        assert!(!names(&signing_request(&key, None).unwrap()));
    }

    #[test]
    fn what_is_no_certificate_has_no_life() {
        assert!(matches!(Life::of("nonsense"), Err(KeyError::Certificate)));
    }
}
