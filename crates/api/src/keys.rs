//! API keys, for admins: `POST` and `GET /v1/keys`, `DELETE /v1/keys/{id}`; and how a key is written.

use std::{fmt, str::FromStr};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};
use space_types::{KeyId, TenantId};
use utoipa::ToSchema;

use crate::{FieldErrors, Timestamp, validate};

/// Body of `POST /v1/keys`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateKey {
    pub tenant_id: TenantId,
    /// For people. 1 to 63 letters, digits, `-`, `_` or `.`.
    pub name: String,
    #[serde(default)]
    pub role: Role,
}

impl CreateKey {
    pub fn validate(&self) -> Result<(), FieldErrors> {
        let mut errors = FieldErrors::default();
        validate::check_name(&mut errors, "name", &self.name);
        errors.finish()
    }
}

/// What a key may do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Everything within its own tenant.
    #[default]
    Member,
    /// That, and tenants, keys, nodes and templates.
    Admin,
}

impl Role {
    pub const ALL: [Self; 2] = [Self::Member, Self::Admin];

    pub const fn code(self) -> &'static str {
        match self {
            Self::Member => "member",
            Self::Admin => "admin",
        }
    }

    pub fn from_code(code: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.code() == code)
    }
}

/// A key without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Key {
    pub id: KeyId,
    pub tenant_id: TenantId,
    pub name: String,
    pub role: Role,
    pub created_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<Timestamp>,
}

/// Answer of `POST /v1/keys`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KeyCreated {
    pub key: Key,
    /// The whole key, as `Authorization: Bearer` wants it. Absent when the answer repeats an earlier one: a
    /// secret is shown once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
}

impl fmt::Debug for KeyCreated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyCreated").field("key", &self.key).finish_non_exhaustive()
    }
}

/// A whole API key: `space_<32 hex digits of the key's id>_<43 characters of base64url>`.
///
/// The id finds the record, so that only a hash of the secret has to be stored; the fixed prefix lets secret
/// scanners recognise one.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey {
    pub id: KeyId,
    pub secret: [u8; 32],
}

impl ApiKey {
    pub const PREFIX: &'static str = "space_";
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected an API key: `space_`, 32 hex digits, `_` and 43 characters of base64url")]
pub struct ParseApiKeyError;

/// The whole key in the clear: for the one answer that shows it, and for requests.
impl fmt::Display for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}_{}", Self::PREFIX, self.id.label(), URL_SAFE_NO_PAD.encode(self.secret))
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}_…", Self::PREFIX, self.id.label())
    }
}

impl FromStr for ApiKey {
    type Err = ParseApiKeyError;

    fn from_str(text: &str) -> Result<Self, ParseApiKeyError> {
        let rest = text.strip_prefix(Self::PREFIX).ok_or(ParseApiKeyError)?;
        let (id, secret) = rest.split_once('_').ok_or(ParseApiKeyError)?;
        let id = format!("{}{id}", KeyId::PREFIX).parse().map_err(|_error| ParseApiKeyError)?;
        let bytes = URL_SAFE_NO_PAD.decode(secret).map_err(|_error| ParseApiKeyError)?;
        Ok(Self { id, secret: bytes.try_into().map_err(|_error| ParseApiKeyError)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_survives_the_round_trip() {
        // 0xff gives `_` in base64url, which must not be taken for a separator.
        let key = ApiKey { id: KeyId::new(), secret: [0xff; 32] };
        assert_eq!(key.to_string().parse(), Ok(key));
    }

    #[test]
    fn what_is_no_key_is_refused() {
        let good = ApiKey { id: KeyId::new(), secret: [1; 32] }.to_string();
        for text in
            ["", "space_", &good[1..], &good[..good.len() - 1], &format!("{good}A"), &good.to_uppercase()]
        {
            assert_eq!(text.parse::<ApiKey>(), Err(ParseApiKeyError), "{text}");
        }
    }

    #[test]
    fn a_key_does_not_print_its_secret_by_accident() {
        let key = ApiKey { id: KeyId::new(), secret: [1; 32] };
        assert!(!format!("{key:?}").contains("AQEB"));
    }
}
