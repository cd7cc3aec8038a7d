//! The CA (ECDSA P-256) and the certificates it signs.
//!
//! A certificate says who its holder is by one URI name. It carries a DNS name too, made from the same ids, so
//! that ordinary verification of a server's name pins the very node and tenant that control means to talk to:
//!
//! | holder | URI | DNS |
//! |---|---|---|
//! | control | `spiffe://space/control` | `control.space.internal` |
//! | node | `spiffe://space/node/<node id>` | `node.<node hex>.space.internal` |
//! | worker | `spiffe://space/node/<node id>/tenant/<tenant id>` | `worker.<tenant hex>.<node hex>.space.internal` |
//! | edge | `spiffe://space/edge` | `edge.space.internal` |
//!
//! Of a signing request only the public key is used: what a node writes into one names nobody.

use aws_lc_rs::digest::{SHA256, digest};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PublicKeyData,
    SanType,
};
use rustls::pki_types::CertificateSigningRequestDer;
use space_types::{NodeId, TenantId};
use time::{Duration, OffsetDateTime};

use super::Peer;

/// How long a node's, worker's or edge's certificate is good. All renew long before.
const LEAF_LIFETIME: Duration = Duration::hours(24);
/// Control's own is made anew at each start.
const CONTROL_LIFETIME: Duration = Duration::days(365);
const AUTHORITY_LIFETIME: Duration = Duration::days(3650);
/// Clocks of nodes may be behind by this much.
const CLOCK_SKEW: Duration = Duration::minutes(10);

#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    #[error("the certificate signing request is not valid")]
    Request(#[source] rcgen::Error),
    #[error("signing failed")]
    Sign(#[from] rcgen::Error),
    #[error("a name does not fit into a certificate")]
    Name,
}

/// A certificate and its key, PEM.
#[derive(Clone)]
pub(crate) struct Identity {
    pub(crate) certificate_pem: String,
    pub(crate) private_key_pem: String,
}

pub(crate) struct Certificates {
    issuer: Issuer<'static, KeyPair>,
    authority_pem: String,
    control: Identity,
}

impl Certificates {
    pub(super) fn new_key() -> Result<String, CertificateError> {
        Ok(KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?.serialize_pem())
    }

    pub(super) fn self_sign(key_pem: &str) -> Result<String, CertificateError> {
        let key = KeyPair::from_pem(key_pem)?;
        let mut params = CertificateParams::default();
        params.distinguished_name = common_name("SPACE installation authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        set_validity(&mut params, AUTHORITY_LIFETIME);
        Ok(params.self_signed(&key)?.pem())
    }

    pub(super) fn new(key_pem: &str, authority_pem: String) -> Result<Self, CertificateError> {
        let issuer = Issuer::from_ca_cert_pem(&authority_pem, KeyPair::from_pem(key_pem)?)?;
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let params = leaf(Peer::Control, CONTROL_LIFETIME)?;
        let certificate = params.signed_by(&key, &issuer)?;
        let control = Identity { certificate_pem: certificate.pem(), private_key_pem: key.serialize_pem() };
        Ok(Self { issuer, authority_pem, control })
    }

    pub(crate) fn authority_pem(&self) -> &str {
        &self.authority_pem
    }

    /// Control's own, as server and as client.
    pub(crate) fn control(&self) -> &Identity {
        &self.control
    }

    pub(crate) fn sign_node(&self, node: NodeId, csr_der: &[u8]) -> Result<String, CertificateError> {
        self.sign(Peer::Node(node), csr_der)
    }

    pub(crate) fn sign_worker(
        &self,
        node: NodeId,
        tenant: TenantId,
        csr_der: &[u8],
    ) -> Result<String, CertificateError> {
        self.sign(Peer::Worker(node, tenant), csr_der)
    }

    pub(crate) fn sign_edge(&self, csr_der: &[u8]) -> Result<String, CertificateError> {
        self.sign(Peer::Edge, csr_der)
    }

    fn sign(&self, holder: Peer, csr_der: &[u8]) -> Result<String, CertificateError> {
        let request = parse_request(csr_der)?;
        let params = leaf(holder, LEAF_LIFETIME)?;
        Ok(params.signed_by(&request.public_key, &self.issuer)?.pem())
    }
}

/// The SHA-256 of the public key in a signing request, whose signature proves that the caller has the private one.
pub(crate) fn request_key_hash(csr_der: &[u8]) -> Result<[u8; 32], CertificateError> {
    let mut hash = [0; 32];
    let key = parse_request(csr_der)?.public_key.subject_public_key_info();
    hash.copy_from_slice(digest(&SHA256, &key).as_ref());
    Ok(hash)
}

fn parse_request(csr_der: &[u8]) -> Result<CertificateSigningRequestParams, CertificateError> {
    let request = CertificateSigningRequestDer::from(csr_der);
    CertificateSigningRequestParams::from_der(&request).map_err(CertificateError::Request)
}

fn leaf(holder: Peer, lifetime: Duration) -> Result<CertificateParams, CertificateError> {
    let mut params = CertificateParams::default();
    params.distinguished_name = common_name(&holder.dns_name());
    let text = |name: String| name.try_into().map_err(|_unfit: rcgen::Error| CertificateError::Name);
    params.subject_alt_names =
        vec![SanType::URI(text(holder.uri())?), SanType::DnsName(text(holder.dns_name())?)];
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = match holder {
        Peer::Control | Peer::Node(_) => {
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth]
        }
        // An edge asks, and serves nothing under this name.
        Peer::Edge => vec![ExtendedKeyUsagePurpose::ClientAuth],
        // A worker answers and never asks.
        Peer::Worker(_, _) => vec![ExtendedKeyUsagePurpose::ServerAuth],
    };
    params.use_authority_key_identifier_extension = true;
    set_validity(&mut params, lifetime);
    Ok(params)
}

fn set_validity(params: &mut CertificateParams, lifetime: Duration) {
    let now = OffsetDateTime::now_utc();
    params.not_before = now - CLOCK_SKEW;
    params.not_after = now + lifetime;
}

fn common_name(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    // A common name has at most 64 characters (RFC 5280, ub-common-name); who it is, the alternative names say.
    distinguished.push(DnType::CommonName, name.chars().take(64).collect::<String>());
    distinguished
}

#[cfg(test)]
mod tests {
    use super::*;

    fn authority() -> Certificates {
        let key = Certificates::new_key().unwrap();
        let pem = Certificates::self_sign(&key).unwrap();
        Certificates::new(&key, pem).unwrap()
    }

    fn request(params: &CertificateParams) -> Vec<u8> {
        let key = KeyPair::generate().unwrap();
        params.serialize_request(&key).unwrap().der().to_vec()
    }

    fn holder(pem: &str) -> Option<Peer> {
        use rustls::pki_types::{CertificateDer, pem::PemObject as _};
        Peer::of(&CertificateDer::from_pem_slice(pem.as_bytes()).unwrap())
    }

    #[test]
    fn a_certificate_names_its_holder() {
        let authority = authority();
        let (node, tenant) = (NodeId::new(), TenantId::new());
        let csr = request(&CertificateParams::default());
        assert_eq!(holder(&authority.sign_node(node, &csr).unwrap()), Some(Peer::Node(node)));
        assert_eq!(
            holder(&authority.sign_worker(node, tenant, &csr).unwrap()),
            Some(Peer::Worker(node, tenant))
        );
        assert_eq!(holder(&authority.sign_edge(&csr).unwrap()), Some(Peer::Edge));
        assert_eq!(holder(&authority.control().certificate_pem), Some(Peer::Control));
    }

    #[test]
    fn a_request_can_not_choose_a_name() {
        let mut params = CertificateParams::new(vec!["control.space.internal".to_owned()]).unwrap();
        params.subject_alt_names.push(SanType::URI("spiffe://space/control".try_into().unwrap()));
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let (authority, node) = (authority(), NodeId::new());
        let pem = authority.sign_node(node, &request(&params)).unwrap();
        assert_eq!(holder(&pem), Some(Peer::Node(node)));
    }

    #[test]
    fn a_key_is_recognised_in_another_request() {
        let key = KeyPair::generate().unwrap();
        let hash = |key: &KeyPair, host: &str| {
            let params = CertificateParams::new(vec![host.to_owned()]).unwrap();
            request_key_hash(params.serialize_request(key).unwrap().der()).unwrap()
        };
        assert_eq!(hash(&key, "a.example"), hash(&key, "b.example"));
        assert_ne!(hash(&key, "a.example"), hash(&KeyPair::generate().unwrap(), "a.example"));
    }

    #[test]
    fn what_is_no_request_is_refused() {
        let result = authority().sign_node(NodeId::new(), b"nonsense");
        assert!(matches!(result, Err(CertificateError::Request(_))));
    }
}
