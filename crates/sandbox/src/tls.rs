//! Who may call: control and the edge, told by the URI name in their certificates, and nobody else.
//!
//! The check is part of the TLS handshake, so a connection that exists belongs to a peer that may use it. No
//! session is resumed: a resumed one would not show its certificate again.

use std::sync::{Arc, Mutex, PoisonError};

use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore, ServerConfig,
    SignatureScheme,
    client::danger::HandshakeSignatureValid,
    crypto::CryptoProvider,
    pki_types::{CertificateDer, PrivateKeyDer, UnixTime, pem::PemObject},
    server::{
        ClientHello, NoServerSessionStorage, ResolvesServerCert, VerifierBuilderError, WebPkiClientVerifier,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
    sign::CertifiedKey,
};
use space_node_proto::worker::Configure;
use x509_parser::{extensions::GeneralName, prelude::FromDer};

/// Who may call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Caller {
    Control,
    Edge,
}

impl Caller {
    fn from_uri(uri: &str) -> Option<Self> {
        match uri {
            "spiffe://space/control" => Some(Self::Control),
            "spiffe://space/edge" => Some(Self::Edge),
            _ => None,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("the certificate does not parse")]
    Certificate(#[source] rustls::pki_types::pem::Error),
    #[error("the private key does not parse")]
    Key(#[source] rustls::pki_types::pem::Error),
    #[error("the authority does not parse")]
    Authority(#[source] rustls::pki_types::pem::Error),
    #[error("the certificate, its key and the authority do not fit together")]
    Mismatch(#[from] Error),
    #[error("the authority can't be used to check clients")]
    Verifier(#[from] VerifierBuilderError),
}

/// The worker's identity, which noded may replace before it expires.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    current: Arc<Mutex<Arc<CertifiedKey>>>,
    provider: Arc<CryptoProvider>,
}

impl Identity {
    pub(crate) fn new(configure: &Configure) -> Result<Self, TlsError> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let key = certified_key(configure, &provider)?;
        Ok(Self { current: Arc::new(Mutex::new(Arc::new(key))), provider })
    }

    /// New connections see the new certificate; those that exist go on.
    pub(crate) fn replace(&self, configure: &Configure) -> Result<(), TlsError> {
        let key = Arc::new(certified_key(configure, &self.provider)?);
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = key;
        Ok(())
    }

    /// Serves HTTP/2 over TLS 1.3 to a [`Caller`] with certificates of `configure`'s authority.
    pub(crate) fn server_config(&self, configure: &Configure) -> Result<ServerConfig, TlsError> {
        let verifier = CallerVerifier { chain: chain_verifier(configure, &self.provider)? };
        let mut config = ServerConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_client_cert_verifier(Arc::new(verifier))
            .with_cert_resolver(Arc::new(self.clone()));
        config.alpn_protocols = vec![b"h2".to_vec()];
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(config)
    }
}

impl ResolvesServerCert for Identity {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.current.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

fn certified_key(configure: &Configure, provider: &CryptoProvider) -> Result<CertifiedKey, TlsError> {
    let chain = CertificateDer::pem_slice_iter(configure.certificate_pem.as_bytes());
    let chain = chain.collect::<Result<Vec<_>, _>>().map_err(TlsError::Certificate)?;
    let key = PrivateKeyDer::from_pem_slice(configure.private_key_pem.as_bytes()).map_err(TlsError::Key)?;
    Ok(CertifiedKey::from_der(chain, key, provider)?)
}

fn chain_verifier(
    configure: &Configure,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(configure.authority_pem.as_bytes()) {
        roots.add(certificate.map_err(TlsError::Authority)?)?;
    }
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider));
    Ok(builder.build()?)
}

/// The chain must be good, and then the name must be a [`Caller`]'s.
#[derive(Debug)]
struct CallerVerifier {
    chain: Arc<dyn ClientCertVerifier>,
}

impl ClientCertVerifier for CallerVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.chain.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.chain.verify_client_cert(end_entity, intermediates, now)?;
        if caller(end_entity).is_some() {
            return Ok(verified);
        }
        Err(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chain.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chain.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chain.supported_verify_schemes()
    }
}

/// Exactly one URI name, and that a [`Caller`]'s: a certificate with two names is nobody's.
pub(crate) fn caller(certificate: &CertificateDer<'_>) -> Option<Caller> {
    let (_rest, parsed) = x509_parser::certificate::X509Certificate::from_der(certificate).ok()?;
    let names = parsed.subject_alternative_name().ok()??;
    let mut uris = names
        .value
        .general_names
        .iter()
        .filter_map(|name| if let GeneralName::URI(uri) = name { Some(*uri) } else { None });
    match (uris.next(), uris.next()) {
        (Some(uri), None) => Caller::from_uri(uri),
        (None | Some(_), _) => None,
    }
}
