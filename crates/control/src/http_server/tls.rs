//! TLS for the public API, when a certificate is configured.

use std::sync::Arc;

use camino::{Utf8Path, Utf8PathBuf};
use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};

#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("cannot read {path}")]
    Read {
        path: Utf8PathBuf,
        #[source]
        source: rustls::pki_types::pem::Error,
    },
    #[error("the certificate and the key can't be used")]
    Unusable(#[from] rustls::Error),
}

/// HTTP/2 and HTTP/1.1 behind this certificate chain and key.
pub(crate) fn server_config(certificates: &Utf8Path, key: &Utf8Path) -> Result<Arc<ServerConfig>, TlsError> {
    let failed = |path: &Utf8Path| {
        let path = path.to_owned();
        |source| TlsError::Read { path, source }
    };
    let chain: Result<Vec<_>, _> =
        CertificateDer::pem_file_iter(certificates).map_err(failed(certificates))?.collect();
    let chain = chain.map_err(failed(certificates))?;
    let key = PrivateKeyDer::from_pem_file(key).map_err(failed(key))?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let mut config = builder.with_no_client_auth().with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
