//! A certificate authority for one test, naming peers as control does.

use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PublicKeyData, SanType,
};

pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub(crate) pem: String,
}

/// A certificate and its key, PEM.
pub(crate) struct Signed {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::from_ca_cert_pem(&pem, key).unwrap(), pem }
    }

    /// For a fresh key.
    pub(crate) fn issue(&self, uri: &str, dns: &str) -> Signed {
        let key = KeyPair::generate().unwrap();
        let certificate = names(uri, dns).signed_by(&key, &self.issuer).unwrap().pem();
        Signed { certificate, key: key.serialize_pem() }
    }

    /// For the key in a signing request.
    pub(crate) fn sign(&self, csr_der: &[u8], uri: &str, dns: &str) -> String {
        let request = CertificateSigningRequestParams::from_der(&csr_der.to_vec().into()).unwrap();
        names(uri, dns).signed_by(&request.public_key, &self.issuer).unwrap().pem()
    }
}

/// What a signing request asks to have certified.
pub(crate) fn public_key(csr_der: &[u8]) -> Vec<u8> {
    let request = CertificateSigningRequestParams::from_der(&csr_der.to_vec().into()).unwrap();
    request.public_key.der_bytes().to_vec()
}

fn names(uri: &str, dns: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.subject_alt_names =
        vec![SanType::URI(uri.try_into().unwrap()), SanType::DnsName(dns.try_into().unwrap())];
    params
}
