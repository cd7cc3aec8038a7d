//! A key and the request to have it certified.

use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256};

pub(super) struct Key(KeyPair);

impl Key {
    pub(super) fn generate() -> anyhow::Result<Self> {
        Ok(Self(KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?))
    }

    pub(super) fn pem(&self) -> String {
        self.0.serialize_pem()
    }

    pub(super) fn request(&self) -> anyhow::Result<Vec<u8>> {
        Ok(CertificateParams::default().serialize_request(&self.0)?.der().to_vec())
    }
}
