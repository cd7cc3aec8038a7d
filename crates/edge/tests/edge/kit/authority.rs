//! A CA for the length of a test.

use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair,
};
use tonic::transport::{Certificate, Identity, ServerTlsConfig};

pub(crate) struct Authority {
    pub(crate) pem: String,
    key_pem: String,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, "authority of a test");
        let pem = params.self_signed(&key).unwrap().pem();
        Self { pem, key_pem: key.serialize_pem() }
    }

    fn issuer(&self) -> Issuer<'static, KeyPair> {
        Issuer::from_ca_cert_pem(&self.pem, KeyPair::from_pem(&self.key_pem).unwrap()).unwrap()
    }

    /// Certificate and key of a server called `name`.
    pub(crate) fn server(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        (params.signed_by(&key, &self.issuer()).unwrap().pem(), key.serialize_pem())
    }

    /// Of a client, for its request.
    pub(crate) fn client(&self, csr_der: &[u8]) -> String {
        let request = CertificateSigningRequestParams::from_der(&csr_der.to_vec().into()).unwrap();
        let mut params = CertificateParams::default();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.not_after = time::OffsetDateTime::now_utc() + time::Duration::hours(1);
        params.not_before = time::OffsetDateTime::now_utc() - time::Duration::hours(1);
        params.signed_by(&request.public_key, &self.issuer()).unwrap().pem()
    }

    /// mTLS for a server called `name`.
    pub(crate) fn mutual(&self, name: &str, optional: bool) -> ServerTlsConfig {
        let (certificate, key) = self.server(name);
        ServerTlsConfig::new()
            .identity(Identity::from_pem(certificate, key))
            .client_ca_root(Certificate::from_pem(&self.pem))
            .client_auth_optional(optional)
    }
}

impl Clone for Authority {
    fn clone(&self) -> Self {
        Self { pem: self.pem.clone(), key_pem: self.key_pem.clone() }
    }
}
