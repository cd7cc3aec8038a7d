//! Who may call: whoever holds a certificate of our authority with the name of control, and nobody else.
//! Other nodes and workers hold certificates of the same authority; their names are refused here.

use std::sync::Arc;

use tonic::{Request, Status, transport::CertificateDer};
use x509_parser::{extensions::GeneralName, parse_x509_certificate};

const CONTROL: &str = "spiffe://space/control";

/// Refuses a call that is not control's.
pub(super) fn require_control<T>(request: &Request<T>) -> Result<(), Status> {
    let chain: Option<Arc<Vec<CertificateDer<'static>>>> = request.peer_certs();
    let leaf = chain.as_ref().and_then(|chain| chain.first());
    if leaf.is_some_and(|leaf| is_named(leaf, CONTROL)) {
        return Ok(());
    }
    Err(Status::permission_denied("only control may call a node"))
}

/// Whether the one URI name in the certificate is `wanted`. Two names are nobody's.
fn is_named(certificate: &[u8], wanted: &str) -> bool {
    let Ok((_, certificate)) = parse_x509_certificate(certificate) else { return false };
    let Ok(Some(names)) = certificate.subject_alternative_name() else { return false };
    let uris: Vec<&str> = names.value.general_names.iter().filter_map(uri).collect();
    uris == [wanted]
}

fn uri<'a>(name: &GeneralName<'a>) -> Option<&'a str> {
    if let GeneralName::URI(uri) = name { Some(uri) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair, SanType};

    fn certificate(uris: &[&str]) -> Vec<u8> {
        let mut params = CertificateParams::default();
        params.subject_alt_names =
            uris.iter().map(|uri| SanType::URI((*uri).to_owned().try_into().unwrap())).collect();
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    #[test]
    fn only_the_name_of_control_and_it_alone_will_do() {
        assert!(is_named(&certificate(&[CONTROL]), CONTROL));
        for names in [&["spiffe://space/node/x"][..], &[], &[CONTROL, "spiffe://space/node/x"]] {
            assert!(!is_named(&certificate(names), CONTROL), "{names:?}");
        }
        assert!(!is_named(b"garbage", CONTROL));
    }
}
