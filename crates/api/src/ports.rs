//! Ports of sandboxes: who may reach them, and tokens for private ones.

use std::num::NonZeroU16;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{FieldErrors, Timestamp, limits};

/// The header that a request to a private port carries its token in. It never reaches the sandbox.
pub const TOKEN_HEADER: &str = "X-Space-Port-Token";
/// The query parameter of a signed link.
pub const TOKEN_PARAMETER: &str = "space_port_token";

/// The header that each answer of an edge's own has, with a code in it. No answer from a sandbox has it.
pub const EDGE_HEADER: &str = "X-Space-Edge";

/// Who may reach a port.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PortVisibility {
    /// Who has a token.
    #[default]
    Private,
    /// Anybody who knows the name.
    Public,
}

impl PortVisibility {
    pub const fn code(self) -> &'static str {
        match self {
            Self::Private => "private",
            Self::Public => "public",
        }
    }

    pub fn from_code(code: &str) -> Option<Self> {
        [Self::Private, Self::Public].into_iter().find(|known| known.code() == code)
    }
}

/// A port of a sandbox. Whether anything listens there only the sandbox knows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Port {
    /// 1 to 65535.
    #[schema(minimum = 1, maximum = 65_535)]
    pub port: u16,
    pub visibility: PortVisibility,
    /// Where it is reached: scheme, `<port>-<id>`, the edge's domain.
    pub url: String,
}

/// Body of `PUT /v1/sandboxes/{sandbox_id}/ports/{port}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetPort {
    pub visibility: PortVisibility,
}

/// Body of `POST /v1/sandboxes/{sandbox_id}/ports/{port}/tokens`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CreatePortToken {
    /// How long the token is good, 1 to 2592000 (30 days).
    #[schema(minimum = 1, maximum = 2_592_000)]
    pub valid_seconds: u32,
}

impl Default for CreatePortToken {
    fn default() -> Self {
        Self { valid_seconds: 3600 }
    }
}

impl CreatePortToken {
    pub fn validate(&self) -> Result<(), FieldErrors> {
        let mut errors = FieldErrors::default();
        errors.require(
            (1..=limits::PORT_TOKEN_SECONDS).contains(&self.valid_seconds),
            "valid_seconds",
            format!("must be 1 to {}", limits::PORT_TOKEN_SECONDS),
        );
        errors.finish()
    }
}

/// Good for one port of one sandbox, until it ends or the port's tokens are revoked.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PortToken {
    /// Absent when the answer repeats an earlier one: a secret is shown once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// Where the port is reached.
    pub url: String,
    /// The same with the token in it, for a browser, which keeps it in a cookie. Absent with the token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
    /// The header that carries the token in other requests.
    #[schema(example = "X-Space-Port-Token")]
    pub header: String,
    pub expires_at: Timestamp,
}

impl std::fmt::Debug for PortToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PortToken")
            .field("url", &self.url)
            .field("expires_at", &self.expires_at)
            .finish_non_exhaustive()
    }
}

/// A port's number as a path has it.
pub fn parse_port(text: &str) -> Result<NonZeroU16, FieldErrors> {
    let plain = !text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit());
    let port = plain.then(|| text.parse().ok()).flatten();
    port.ok_or_else(|| FieldErrors::one("port", "must be 1 to 65535"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_a_number_between_1_and_65535() {
        assert_eq!(parse_port("65535").unwrap().get(), 65_535);
        for text in ["", "0", "65536", "+80", "080", "8 0", "http", "-1"] {
            assert_eq!(parse_port(text).unwrap_err().as_slice()[0].field, "port", "{text}");
        }
    }

    #[test]
    fn a_token_is_good_for_up_to_30_days() {
        assert!(CreatePortToken::default().validate().is_ok());
        assert!(CreatePortToken { valid_seconds: 2_592_000 }.validate().is_ok());
        for valid_seconds in [0, 2_592_001] {
            assert!(CreatePortToken { valid_seconds }.validate().is_err());
        }
    }

    #[test]
    fn nobody_finds_a_token_in_a_log() {
        let token = PortToken {
            token: Some("secret".to_owned()),
            url: String::new(),
            link: Some("secret".to_owned()),
            header: String::new(),
            expires_at: Timestamp::from_unix_milliseconds(0),
        };
        assert!(!format!("{token:?}").contains("secret"));
    }
}
