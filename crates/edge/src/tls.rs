//! The operator's certificate, read again when its files change.

use std::{
    fs,
    io::{self, Cursor},
    sync::{Arc, PoisonError, RwLock},
    time::{Duration, SystemTime},
};

use camino::{Utf8Path, Utf8PathBuf};
use rustls::{
    ServerConfig,
    crypto::CryptoProvider,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use space_runtime::telemetry::chain;

use crate::config::TlsConfig;

const LOOK: Duration = Duration::from_secs(10);

#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("cannot read {path}")]
    Read {
        path: Utf8PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{path} is not PEM of the right kind")]
    Pem {
        path: Utf8PathBuf,
        #[source]
        source: rustls::pki_types::pem::Error,
    },
    #[error("the certificate and the key don't fit together")]
    Pair(#[source] rustls::Error),
    #[error("no cryptography is installed")]
    Provider,
}

/// The certificate in use.
#[derive(Debug)]
pub(crate) struct Current(RwLock<Arc<CertifiedKey>>);

impl ResolvesServerCert for Current {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner)))
    }
}

pub(crate) fn server_config(current: &Arc<Current>) -> ServerConfig {
    let mut config =
        ServerConfig::builder().with_no_client_auth().with_cert_resolver(Arc::clone(current) as _);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config
}

impl Current {
    pub(crate) fn load(files: &TlsConfig) -> Result<Arc<Self>, TlsError> {
        Ok(Arc::new(Self(RwLock::new(load(files)?))))
    }

    /// Cancel safe.
    pub(crate) async fn reload_forever(self: Arc<Self>, files: TlsConfig) {
        let mut seen = changed_at(&files);
        loop {
            tokio::time::sleep(LOOK).await;
            let now = changed_at(&files);
            if now != seen {
                seen = now;
                self.reload(&files);
            }
        }
    }

    fn reload(&self, files: &TlsConfig) {
        match load(files) {
            Ok(key) => {
                *self.0.write().unwrap_or_else(PoisonError::into_inner) = key;
                tracing::info!("the certificate was read again");
            }
            Err(error) => tracing::warn!(error = %chain(&error), "the old certificate stays in use"),
        }
    }
}

fn load(files: &TlsConfig) -> Result<Arc<CertifiedKey>, TlsError> {
    let pem_error = |path: &Utf8Path| {
        let path = path.to_owned();
        move |source| TlsError::Pem { path, source }
    };
    let text = read(&files.certificate)?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_reader_iter(Cursor::new(text)).collect();
    let chain = chain.map_err(pem_error(&files.certificate))?;
    let key = PrivateKeyDer::from_pem_slice(&read(&files.key)?).map_err(pem_error(&files.key))?;
    let provider = CryptoProvider::get_default().ok_or(TlsError::Provider)?;
    Ok(Arc::new(CertifiedKey::from_der(chain, key, provider).map_err(TlsError::Pair)?))
}

fn read(path: &Utf8Path) -> Result<Vec<u8>, TlsError> {
    fs::read(path).map_err(|source| TlsError::Read { path: path.to_owned(), source })
}

fn changed_at(files: &TlsConfig) -> [Option<SystemTime>; 2] {
    [&files.certificate, &files.key]
        .map(|path| fs::metadata(path).and_then(|metadata| metadata.modified()).ok())
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    fn write(files: &TlsConfig, name: &str) -> CertificateDer<'static> {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec![name.to_owned()]).unwrap().self_signed(&key).unwrap();
        fs::write(&files.certificate, certificate.pem()).unwrap();
        fs::write(&files.key, key.serialize_pem()).unwrap();
        certificate.der().clone()
    }

    #[test]
    fn a_changed_pair_is_taken_and_a_broken_one_is_not() {
        drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
        let directory = tempfile::tempdir().unwrap();
        let path = Utf8Path::from_path(directory.path()).unwrap();
        let files = TlsConfig { certificate: path.join("c.pem"), key: path.join("k.pem") };
        let first = write(&files, "one.example");
        let current = Current::load(&files).unwrap();
        let leaf = |current: &Current| current.0.read().unwrap().cert[0].clone();
        assert_eq!(leaf(&current), first);
        let second = write(&files, "two.example");
        current.reload(&files);
        assert_eq!(leaf(&current), second);
        fs::write(&files.key, KeyPair::generate().unwrap().serialize_pem()).unwrap();
        current.reload(&files);
        assert_eq!(leaf(&current), second, "the key does not fit");
    }
}
