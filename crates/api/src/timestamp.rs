//! A point in time as the API writes it.

use std::{borrow::Cow, fmt};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// RFC 3339 in UTC with exactly three digits of a second: `2026-01-31T07:00:00.000Z`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(jiff::Timestamp);

impl Timestamp {
    /// From Unix time in milliseconds. Values beyond the year 9999 become its end.
    pub fn from_unix_milliseconds(milliseconds: i64) -> Self {
        Self(jiff::Timestamp::from_millisecond(milliseconds).unwrap_or(jiff::Timestamp::MAX))
    }

    /// As above, for the unsigned values of the node protocols. Zero there means "not yet": `None`.
    pub fn from_proto_milliseconds(milliseconds: u64) -> Option<Self> {
        (milliseconds != 0)
            .then(|| Self::from_unix_milliseconds(i64::try_from(milliseconds).unwrap_or(i64::MAX)))
    }

    pub fn unix_milliseconds(self) -> i64 {
        self.0.as_millisecond()
    }

    pub fn as_jiff(self) -> jiff::Timestamp {
        self.0
    }
}

impl From<jiff::Timestamp> for Timestamp {
    fn from(timestamp: jiff::Timestamp) -> Self {
        Self(timestamp)
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3}", self.0)
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map(Self).map_err(serde::de::Error::custom)
    }
}

impl utoipa::PartialSchema for Timestamp {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
        utoipa::openapi::schema::ObjectBuilder::new()
            .schema_type(utoipa::openapi::schema::Type::String)
            .format(Some(utoipa::openapi::schema::SchemaFormat::KnownFormat(
                utoipa::openapi::schema::KnownFormat::DateTime,
            )))
            .build()
            .into()
    }
}

impl utoipa::ToSchema for Timestamp {}

#[cfg(test)]
mod tests {
    use super::Timestamp;

    #[test]
    fn times_have_milliseconds_even_when_they_are_zero() {
        let shown = [0, 1_769_842_800_001].map(|ms| Timestamp::from_unix_milliseconds(ms).to_string());
        assert_eq!(shown, ["1970-01-01T00:00:00.000Z", "2026-01-31T07:00:00.001Z"]);
    }

    #[test]
    fn a_guests_absurd_clock_does_not_panic() {
        assert!(Timestamp::from_proto_milliseconds(u64::MAX).unwrap().to_string().starts_with("9999"));
        assert_eq!(Timestamp::from_proto_milliseconds(0), None);
    }
}
