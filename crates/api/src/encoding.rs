//! Bytes inside JSON.

use std::{borrow::Cow, fmt};

use base64::{Engine, engine::general_purpose::STANDARD};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Bytes, written as base64 (RFC 4648, section 4: standard alphabet, padded).
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Base64Bytes(pub Vec<u8>);

impl Base64Bytes {
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<T: Into<Vec<u8>>> From<T> for Base64Bytes {
    fn from(bytes: T) -> Self {
        Self(bytes.into())
    }
}

impl AsRef<[u8]> for Base64Bytes {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Output and input of commands may be secret and may be long: neither belongs in a log.
impl fmt::Debug for Base64Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{} bytes]", self.0.len())
    }
}

impl Serialize for Base64Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Base64Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        STANDARD
            .decode(text.as_bytes())
            .map(Self)
            .map_err(|_error| serde::de::Error::custom("expected base64 with padding"))
    }
}

impl utoipa::PartialSchema for Base64Bytes {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
        utoipa::openapi::schema::ObjectBuilder::new()
            .schema_type(utoipa::openapi::schema::Type::String)
            .content_encoding("base64")
            .build()
            .into()
    }
}

impl utoipa::ToSchema for Base64Bytes {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_survive_the_round_trip() {
        let bytes = Base64Bytes::from(vec![0, 255, 10, 13]);
        let text = serde_json::to_string(&bytes).unwrap();
        assert_eq!(text, r#""AP8KDQ==""#);
        assert_eq!(serde_json::from_str::<Base64Bytes>(&text).unwrap(), bytes);
    }

    #[test]
    fn other_alphabets_are_refused() {
        for text in [r#""AP8KDQ""#, r#""_-8=""#, r#""A P8""#] {
            assert!(serde_json::from_str::<Base64Bytes>(text).is_err(), "{text}");
        }
    }
}
