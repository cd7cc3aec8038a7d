//! What there is to do about an edge that lets nobody through.

use space_api::client::EdgeError;

pub(super) fn hint(error: &EdgeError) -> Option<&'static str> {
    let hint = match error {
        EdgeError::Refused { code, .. } => return by_code(code),
        EdgeError::NoEdge { .. } => {
            "`ports.base_url` of the control plane has to name an edge that is reached without another proxy before it"
        }
        EdgeError::Unreachable { .. } | EdgeError::Silent { .. } => {
            "is it running, and reached from this machine? Its address is `ports.base_url` of the control plane"
        }
    };
    Some(hint)
}

/// The codes are those of `docs/problems/edge`.
fn by_code(code: &str) -> Option<&'static str> {
    let hint = match code {
        "port_unauthorized" => {
            "does the edge belong to this control plane, and are the clocks of both right?"
        }
        "port_unknown" => "`ports.base_url` of the control plane and the edge's `domain` have to be the same",
        "port_sandbox_not_running" => "`space get` tells its state, and why it ended if it did",
        "port_not_listening" => "start what is to listen there, or wait until it does; 127.0.0.1 is enough",
        "port_unsupported" => "create the sandbox anew: its agent is from before there were ports",
        "too_many_connections" | "address_limited" => {
            "close connections that nobody uses, or try again in a moment"
        }
        "port_bad_response" | "sandbox_unreachable" | "edge_unavailable" => {
            "try again in a moment; `space get` tells the sandbox's state"
        }
        _ => return None,
    };
    Some(hint)
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    #[test]
    fn there_is_something_to_do_about_every_refusal() {
        let pages = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/problems/edge");
        for page in fs::read_dir(pages).unwrap() {
            let name = page.unwrap().file_name().into_string().unwrap();
            let code = name.strip_suffix(".md").unwrap();
            // This client sends one Host and no length.
            assert!(by_code(code).is_some() || code == "request_malformed", "{code}");
        }
    }
}
