//! The certificate that lets control trust one tenant's worker. The key is made here and lives in memory
//! alone; control signs it with the name of this node and the tenant.

use std::net::IpAddr;

use space_enrol::{KeyError, Life, LinkError, new_key, signing_request};
use space_node_proto::registry::SignWorkerRequest;
use space_types::TenantId;
use tokio::time::Instant;

use crate::enrol::ControlLink;

#[derive(Debug, thiserror::Error)]
pub(crate) enum CertificateError {
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error(transparent)]
    Link(#[from] LinkError),
}

#[derive(Debug, Clone)]
pub(super) struct WorkerCertificate {
    pub(super) certificate_pem: String,
    pub(super) private_key_pem: String,
    pub(super) authority_pem: String,
    /// Two thirds into its life.
    pub(super) renew_at: Instant,
    pub(super) expires_at: Instant,
}

/// Makes a key and has it signed. Cancel safe.
pub(super) async fn obtain(
    control: &ControlLink,
    tenant: TenantId,
    address: IpAddr,
) -> Result<WorkerCertificate, CertificateError> {
    let private_key_pem = new_key()?;
    let csr_der = signing_request(&private_key_pem, Some(&address.to_string()))?;
    let signed = control.sign_worker(SignWorkerRequest { tenant_id: tenant.to_string(), csr_der }).await?;
    let (life, now) = (Life::of(&signed.certificate_pem)?, Instant::now());
    Ok(WorkerCertificate {
        renew_at: now + life.until_renewal,
        expires_at: now + life.left,
        certificate_pem: signed.certificate_pem,
        private_key_pem,
        authority_pem: signed.authority_pem,
    })
}
