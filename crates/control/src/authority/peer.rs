//! Who is on the other end of a connection, as its certificate says.

use rustls::pki_types::CertificateDer;
use space_types::{NodeId, TenantId};
use x509_parser::{extensions::GeneralName, parse_x509_certificate};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Peer {
    Control,
    Node(NodeId),
    Worker(NodeId, TenantId),
    /// Any of them: workers and control need not tell edges apart.
    Edge,
}

const ROOT: &str = "spiffe://space/";

impl Peer {
    pub(crate) fn uri(self) -> String {
        match self {
            Self::Control => format!("{ROOT}control"),
            Self::Edge => format!("{ROOT}edge"),
            Self::Node(node) => format!("{ROOT}node/{node}"),
            Self::Worker(node, tenant) => format!("{ROOT}node/{node}/tenant/{tenant}"),
        }
    }

    /// What a client of this peer verifies.
    pub(crate) fn dns_name(self) -> String {
        match self {
            Self::Control => "control.space.internal".to_owned(),
            Self::Edge => "edge.space.internal".to_owned(),
            Self::Node(node) => format!("node.{}.space.internal", node.label()),
            Self::Worker(node, tenant) => {
                format!("worker.{}.{}.space.internal", tenant.label(), node.label())
            }
        }
    }

    /// From a certificate whose chain was verified. `None` unless it has exactly one URI name, of a known form.
    pub(crate) fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        let (_, parsed) = parse_x509_certificate(certificate).ok()?;
        let names = parsed.subject_alternative_name().ok()??;
        // Every other kind of name says nothing about who it is.
        let mut uris = names.value.general_names.iter().filter_map(|name| {
            let GeneralName::URI(uri) = name else { return None };
            Some(*uri)
        });
        let uri = uris.next().filter(|_| uris.next().is_none())?;
        Self::parse(uri)
    }

    fn parse(uri: &str) -> Option<Self> {
        let rest = uri.strip_prefix(ROOT)?;
        if rest == "control" {
            return Some(Self::Control);
        }
        if rest == "edge" {
            return Some(Self::Edge);
        }
        let rest = rest.strip_prefix("node/")?;
        match rest.split_once("/tenant/") {
            None => Some(Self::Node(rest.parse().ok()?)),
            Some((node, tenant)) => Some(Self::Worker(node.parse().ok()?, tenant.parse().ok()?)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_survives_the_round_trip() {
        let worker = Peer::Worker(NodeId::new(), TenantId::new());
        for peer in [Peer::Control, Peer::Edge, Peer::Node(NodeId::new()), worker] {
            assert_eq!(Peer::parse(&peer.uri()), Some(peer));
        }
    }

    #[test]
    fn a_foreign_name_is_nobody() {
        for uri in [
            "",
            "spiffe://space/",
            "spiffe://other/control",
            "spiffe://space/node/x",
            "spiffe://space/control/",
            "spiffe://space/edge/1",
        ] {
            assert_eq!(Peer::parse(uri), None, "{uri}");
        }
    }
}
