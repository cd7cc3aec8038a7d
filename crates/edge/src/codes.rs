//! The edge's own problems: a closed list. Each code has its page in `docs/problems/edge`; a test keeps both in step.
//! A code is in the header `X-Space-Edge` too, so that the edge's answers can be told from the guest's.

use http::StatusCode;

macro_rules! edge_codes {
    ($($name:ident = $code:literal, $status:ident, $title:literal;)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum EdgeCode {
            $($name,)*
        }

        impl EdgeCode {
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            pub const fn code(self) -> &'static str {
                match self { $(Self::$name => $code,)* }
            }

            pub const fn status(self) -> StatusCode {
                match self { $(Self::$name => StatusCode::$status,)* }
            }

            pub const fn title(self) -> &'static str {
                match self { $(Self::$name => $title,)* }
            }
        }
    };
}

edge_codes! {
    RequestMalformed = "request_malformed", BAD_REQUEST, "The request is not well-formed";
    PortUnauthorized = "port_unauthorized", UNAUTHORIZED, "No valid token for this port was given";
    PortUnknown = "port_unknown", NOT_FOUND, "The host name names no port";
    PortSandboxNotRunning = "port_sandbox_not_running", SERVICE_UNAVAILABLE, "The sandbox does not run";
    PortNotListening = "port_not_listening", BAD_GATEWAY, "Nothing answers on the port";
    PortBadResponse = "port_bad_response", BAD_GATEWAY, "The answer from the port can't be understood";
    PortUnsupported = "port_unsupported", NOT_IMPLEMENTED, "The sandbox's agent has no tunnels";
    SandboxUnreachable = "sandbox_unreachable", SERVICE_UNAVAILABLE, "The sandbox does not answer";
    TooManyConnections = "too_many_connections", SERVICE_UNAVAILABLE, "There are too many connections";
    AddressLimited = "address_limited", TOO_MANY_REQUESTS, "Too much comes from this address";
    EdgeUnavailable = "edge_unavailable", SERVICE_UNAVAILABLE, "The edge can't ask the control plane";
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs, path::Path};

    use super::*;

    #[test]
    fn every_code_has_a_page_and_every_page_a_code() {
        let pages = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/problems/edge");
        let files =
            fs::read_dir(&pages).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let files: BTreeSet<_> = files.collect();
        let index = fs::read_to_string(pages.join("../README.md")).unwrap();
        let codes = EdgeCode::ALL.iter().map(|code| format!("{}.md", code.code()));
        assert_eq!(files, codes.collect::<BTreeSet<_>>());
        for code in EdgeCode::ALL {
            let (name, status, title) = (code.code(), code.status().as_u16(), code.title());
            let page = fs::read_to_string(pages.join(format!("{name}.md"))).unwrap();
            let head = format!("# {name}\n\n**{status} · {title}**\n");
            assert!(page.starts_with(&head), "docs/problems/edge/{name}.md must begin with:\n{head}");
            assert!(page.contains("\n## What to do\n"), "{name}");
            let line = format!("| [{name}](edge/{name}.md) | {status} | {title} |");
            assert!(index.contains(&line), "missing in docs/problems/README.md: {line}");
        }
    }
}
