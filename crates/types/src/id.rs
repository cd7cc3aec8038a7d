//! Typed ids. On the wire an id is a prefix and a UUIDv7 in 32 lower-case hex digits (`sbx_0192…`): sortable by
//! age, safe in a URL, and the part behind the prefix is a valid DNS label.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::Uuid;

/// Why a text is no id of the wanted kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseIdError {
    #[error("expected an id that begins with `{expected}`")]
    Prefix { expected: &'static str },
    #[error("expected 32 lower-case hex digits after `{prefix}`")]
    Digits { prefix: &'static str },
}

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident = $prefix:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(Uuid);

        impl $name {
            pub const PREFIX: &'static str = $prefix;

            /// A new id, later in order than every one made before it on this machine.
            #[allow(clippy::new_without_default)]
            pub fn new() -> Self {
                Self(Uuid::now_v7())
            }

            pub const fn from_uuid(uuid: Uuid) -> Self {
                Self(uuid)
            }

            pub const fn uuid(self) -> Uuid {
                self.0
            }

            /// The id without its prefix: 32 hex digits.
            pub fn label(self) -> String {
                self.0.simple().to_string()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}{}", $prefix, self.0.simple())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = ParseIdError;

            fn from_str(text: &str) -> Result<Self, ParseIdError> {
                let digits = text.strip_prefix($prefix).ok_or(ParseIdError::Prefix { expected: $prefix })?;
                parse_digits(digits).map(Self).ok_or(ParseIdError::Digits { prefix: $prefix })
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }

        #[cfg(feature = "utoipa")]
        impl utoipa::PartialSchema for $name {
            fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
                id_schema($prefix)
            }
        }

        #[cfg(feature = "utoipa")]
        impl utoipa::ToSchema for $name {}
    )*};
}

ids! {
    /// One sandbox.
    SandboxId = "sbx_";
    /// One asynchronous change of a sandbox.
    OperationId = "op_";
    /// One command session.
    CommandId = "cmd_";
    /// One tenant.
    TenantId = "tnt_";
    /// One machine that runs sandboxes.
    NodeId = "node_";
    /// One project of a tenant.
    ProjectId = "prj_";
    /// One API key (its public half; the secret is never an id).
    KeyId = "key_";
    /// One published version of a template.
    ReleaseId = "rel_";
    /// One entry of the event log.
    EventId = "evt_";
}

fn parse_digits(digits: &str) -> Option<Uuid> {
    let canonical =
        digits.len() == 32 && digits.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    canonical.then(|| Uuid::try_parse(digits).ok()).flatten()
}

#[cfg(feature = "utoipa")]
fn id_schema(prefix: &str) -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
    utoipa::openapi::schema::ObjectBuilder::new()
        .schema_type(utoipa::openapi::schema::Type::String)
        .pattern(Some(format!("^{prefix}[0-9a-f]{{32}}$")))
        .build()
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_survives_the_round_trip() {
        let id = SandboxId::new();
        assert_eq!(id.to_string().parse(), Ok(id));
    }

    #[test]
    fn ids_sort_by_age() {
        let first = SandboxId::new();
        assert!(first < SandboxId::new());
    }

    #[test]
    fn only_the_canonical_spelling_is_an_id() {
        let id = SandboxId::new();
        let upper = format!("sbx_{}", id.label().to_uppercase());
        let dashed = format!("sbx_{}", id.uuid().hyphenated());
        for text in [upper.as_str(), dashed.as_str(), "sbx_", "op_1", ""] {
            assert!(text.parse::<SandboxId>().is_err(), "{text}");
        }
    }
}
