//! How a template is named: `name:tag` follows a published release, `name@sha256:…` picks exact content.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// SHA-256 of a template's image, written `sha256:<64 lower-case hex digits>`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest(String);

/// A template as a user names it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum TemplateRef {
    Tag { name: String, tag: String },
    Exact { name: String, digest: Digest },
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseTemplateRefError {
    #[error(
        "a template's name has 1 to 63 characters out of a-z, 0-9, `-`, `_` and `.`, and begins with a letter or digit"
    )]
    Name,
    #[error(
        "a tag has 1 to 63 characters out of a-z, A-Z, 0-9, `-`, `_` and `.`, and begins with a letter or digit"
    )]
    Tag,
    #[error("a digest is `sha256:` and 64 lower-case hex digits")]
    Digest,
}

impl Digest {
    /// From the 32 bytes of a SHA-256.
    pub fn from_sha256(bytes: [u8; 32]) -> Self {
        Self(bytes.iter().fold(String::from("sha256:"), |text, byte| text + &format!("{byte:02x}")))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The digits alone, for file names.
    pub fn hex(&self) -> &str {
        &self.0["sha256:".len()..]
    }
}

impl FromStr for Digest {
    type Err = ParseTemplateRefError;

    fn from_str(text: &str) -> Result<Self, ParseTemplateRefError> {
        let digits = text.strip_prefix("sha256:").ok_or(ParseTemplateRefError::Digest)?;
        let canonical =
            digits.len() == 64 && digits.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        canonical.then(|| Self(text.to_owned())).ok_or(ParseTemplateRefError::Digest)
    }
}

impl TemplateRef {
    pub const DEFAULT_TAG: &'static str = "latest";

    pub fn name(&self) -> &str {
        match self {
            Self::Tag { name, .. } | Self::Exact { name, .. } => name,
        }
    }
}

impl FromStr for TemplateRef {
    type Err = ParseTemplateRefError;

    /// `name` (tag `latest`), `name:tag` or `name@sha256:…`.
    fn from_str(text: &str) -> Result<Self, ParseTemplateRefError> {
        if let Some((name, digest)) = text.split_once('@') {
            return Ok(Self::Exact { name: checked_name(name)?, digest: digest.parse()? });
        }
        let (name, tag) = text.split_once(':').unwrap_or((text, Self::DEFAULT_TAG));
        if !is_word(tag, |b| b.is_ascii_alphanumeric()) {
            return Err(ParseTemplateRefError::Tag);
        }
        Ok(Self::Tag { name: checked_name(name)?, tag: tag.to_owned() })
    }
}

fn checked_name(name: &str) -> Result<String, ParseTemplateRefError> {
    let valid = is_word(name, |b| b.is_ascii_lowercase() || b.is_ascii_digit());
    valid.then(|| name.to_owned()).ok_or(ParseTemplateRefError::Name)
}

fn is_word(text: &str, letter: impl Fn(u8) -> bool) -> bool {
    let rest = |b: u8| letter(b) || matches!(b, b'-' | b'_' | b'.');
    (1..=63).contains(&text.len()) && text.bytes().next().is_some_and(&letter) && text.bytes().all(rest)
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for TemplateRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tag { name, tag } => write!(f, "{name}:{tag}"),
            Self::Exact { name, digest } => write!(f, "{name}@{digest}"),
        }
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(feature = "utoipa")]
impl utoipa::PartialSchema for Digest {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
        utoipa::openapi::schema::ObjectBuilder::new()
            .schema_type(utoipa::openapi::schema::Type::String)
            .pattern(Some("^sha256:[0-9a-f]{64}$"))
            .build()
            .into()
    }
}

#[cfg(feature = "utoipa")]
impl utoipa::ToSchema for Digest {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_bare_name_means_its_latest_release() {
        assert_eq!("base".parse::<TemplateRef>().unwrap().to_string(), "base:latest");
    }

    #[test]
    fn names_that_could_be_paths_are_refused() {
        for text in ["", ":x", "../base", "a/b", ".hidden", "Base", "base:", "base@sha256:12", "base:a:b"] {
            assert!(text.parse::<TemplateRef>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_parses_prints_as_it_parses(text in "\\PC{0,80}") {
            if let Ok(reference) = text.parse::<TemplateRef>() {
                prop_assert_eq!(reference.to_string().parse::<TemplateRef>().unwrap(), reference);
            }
        }
    }
}
