//! API keys: `POST` and `GET /v1/keys`, `DELETE /v1/keys/{id}`, `POST /v1/keys/{id}/rotate`; and how a key is
//! written.

use std::{fmt, str::FromStr};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};
use space_types::{KeyId, ProjectId, TenantId};
use utoipa::ToSchema;

use crate::{FieldErrors, Timestamp, limits, scopes::Scope, validate};

/// Body of `POST /v1/keys`. A key never makes one that may do more, or lives longer, than itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateKey {
    /// For people. 1 to 63 letters, digits, `-`, `_` or `.`.
    pub name: String,
    /// Whose it is: the caller's own tenant when absent. Another one takes an admin's key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant_id: Option<TenantId>,
    /// The only project that it sees. When absent: the one of the key that makes it, if that has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project_id: Option<ProjectId>,
    #[serde(default)]
    pub role: Role,
    /// What it may do. When absent: all that the key may which makes it. Not with the role `admin`, which has all,
    /// and without `projects` for a key of one project.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scopes: Option<Vec<Scope>>,
    /// It is refused after so long: a minute to ten years. When absent: with the key that makes it, if that ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 60, maximum = 316_224_000)]
    pub expires_in_seconds: Option<u64>,
}

impl CreateKey {
    pub fn validate(&self) -> Result<(), FieldErrors> {
        let mut errors = FieldErrors::default();
        validate::check_name(&mut errors, "name", &self.name);
        let scopes = self.scopes.as_deref();
        errors.require(
            scopes.is_none_or(|scopes| !scopes.is_empty()),
            "scopes",
            "a key without a scope is good for nothing",
        );
        errors.require(
            scopes.is_none() || self.role == Role::Member,
            "scopes",
            "the role `admin` has all of them",
        );
        errors.require(
            self.project_id.is_none() || self.role == Role::Member,
            "project_id",
            "the role `admin` reaches over all of them",
        );
        let manages = scopes.is_some_and(|scopes| scopes.contains(&Scope::Projects));
        errors.require(
            self.project_id.is_none() || !manages,
            "scopes",
            "a key of one project can't have the scope `projects`",
        );
        errors.require(
            self.expires_in_seconds.is_none_or(|seconds| limits::KEY_SECONDS.contains(&seconds)),
            "expires_in_seconds",
            format!("must be {} to {}", limits::KEY_SECONDS.start(), limits::KEY_SECONDS.end()),
        );
        errors.finish()
    }
}

/// Body of `POST /v1/keys/{id}/rotate`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RotateKey {
    /// How long the present secret stays valid beside the new one: 0, for one that leaked, to seven days.
    #[schema(minimum = 0, maximum = 604_800)]
    pub overlap_seconds: u64,
}

impl Default for RotateKey {
    fn default() -> Self {
        Self { overlap_seconds: 3600 }
    }
}

impl RotateKey {
    pub fn validate(&self) -> Result<(), FieldErrors> {
        let mut errors = FieldErrors::default();
        errors.require(
            self.overlap_seconds <= limits::ROTATION_OVERLAP_SECONDS,
            "overlap_seconds",
            format!("must be 0 to {}", limits::ROTATION_OVERLAP_SECONDS),
        );
        errors.finish()
    }
}

/// How far a key reaches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// What its scopes allow, within its own tenant.
    #[default]
    Member,
    /// Everything there, and tenants, all keys, nodes and templates.
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
    /// The only project that it sees; absent for a key of the whole tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project_id: Option<ProjectId>,
    pub name: String,
    pub role: Role,
    pub scopes: Vec<Scope>,
    pub created_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// When its present secret was made, if that is not the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotated_at: Option<Timestamp>,
    /// Until when the secret before that is valid too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub former_secret_until: Option<Timestamp>,
    /// To about a minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_used_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<Timestamp>,
}

/// Answer of `POST /v1/keys` and of a rotation.
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
    fn a_bad_request_for_a_key_is_told_which_field() {
        let good = CreateKey { name: "k".into(), ..CreateKey::default() };
        assert_eq!(good.validate(), Ok(()));
        let table = [
            (CreateKey { name: String::new(), ..good.clone() }, "name"),
            (CreateKey { scopes: Some(Vec::new()), ..good.clone() }, "scopes"),
            (CreateKey { scopes: Some(vec![Scope::Keys]), role: Role::Admin, ..good.clone() }, "scopes"),
            (
                CreateKey { project_id: Some(ProjectId::new()), role: Role::Admin, ..good.clone() },
                "project_id",
            ),
            (
                CreateKey {
                    project_id: Some(ProjectId::new()),
                    scopes: Some(vec![Scope::Projects]),
                    ..good.clone()
                },
                "scopes",
            ),
            (CreateKey { expires_in_seconds: Some(59), ..good.clone() }, "expires_in_seconds"),
            (CreateKey { expires_in_seconds: Some(u64::MAX), ..good }, "expires_in_seconds"),
        ];
        for (request, field) in table {
            assert_eq!(request.validate().unwrap_err().into_vec()[0].field, field);
        }
        assert!(RotateKey { overlap_seconds: limits::ROTATION_OVERLAP_SECONDS }.validate().is_ok());
        assert!(RotateKey { overlap_seconds: limits::ROTATION_OVERLAP_SECONDS + 1 }.validate().is_err());
    }

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
