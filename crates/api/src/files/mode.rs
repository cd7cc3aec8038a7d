//! Permission bits.

use std::{borrow::Cow, fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// 0 to 0o7777, written in octal as `chmod` takes it: `"0644"`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileMode(u32);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be an octal number of at most 7777, as 0644")]
pub struct NoMode;

impl FileMode {
    pub const fn new(bits: u32) -> Option<Self> {
        if bits <= 0o7777 { Some(Self(bits)) } else { None }
    }

    /// Nobody may do anything.
    pub const NONE: Self = Self(0);

    pub const fn bits(self) -> u32 {
        self.0
    }
}

impl FromStr for FileMode {
    type Err = NoMode;

    fn from_str(text: &str) -> Result<Self, NoMode> {
        let octal = (1..=5).contains(&text.len()) && text.bytes().all(|byte| (b'0'..=b'7').contains(&byte));
        let bits = octal.then(|| u32::from_str_radix(text, 8).ok()).flatten();
        bits.and_then(Self::new).ok_or(NoMode)
    }
}

impl fmt::Display for FileMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04o}", self.0)
    }
}

impl fmt::Debug for FileMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for FileMode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for FileMode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Cow::<'de, str>::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl utoipa::PartialSchema for FileMode {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
        utoipa::openapi::schema::ObjectBuilder::new()
            .schema_type(utoipa::openapi::schema::Type::String)
            .pattern(Some("^[0-7]{1,5}$"))
            .examples([serde_json::json!("0644")])
            .build()
            .into()
    }
}

impl utoipa::ToSchema for FileMode {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_is_octal_in_both_directions() {
        for (text, bits) in [("644", 0o644), ("0644", 0o644), ("7777", 0o7777), ("0", 0)] {
            assert_eq!(text.parse::<FileMode>().unwrap().bits(), bits);
        }
        assert_eq!(FileMode::new(0o644).unwrap().to_string(), "0644");
        for text in ["", "8", "0o644", "+644", "10000", "u+x", "-1", "000644"] {
            assert!(text.parse::<FileMode>().is_err(), "{text}");
        }
    }
}
