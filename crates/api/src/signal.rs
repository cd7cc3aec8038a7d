//! Signals by name or number.

use std::{borrow::Cow, fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Linux signals 1 to 31, in order.
const NAMES: [&str; 31] = [
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE",
    "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ",
    "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
];

/// A signal of Linux, 1 to 31. In JSON a name (`"INT"` or `"SIGINT"`) or a number.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Signal(u8);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected a signal's name such as \"INT\", or a number from 1 to 31")]
pub struct UnknownSignal;

impl Signal {
    pub const INT: Self = Self(2);
    pub const QUIT: Self = Self(3);
    pub const KILL: Self = Self(9);
    pub const TERM: Self = Self(15);

    pub fn from_number(number: i64) -> Result<Self, UnknownSignal> {
        u8::try_from(number).ok().filter(|n| (1..=31).contains(n)).map(Self).ok_or(UnknownSignal)
    }

    pub const fn number(self) -> i32 {
        self.0 as i32
    }

    /// Without `SIG`.
    pub fn name(self) -> &'static str {
        NAMES[usize::from(self.0 - 1)]
    }
}

impl FromStr for Signal {
    type Err = UnknownSignal;

    fn from_str(text: &str) -> Result<Self, UnknownSignal> {
        if let Ok(number) = text.parse() {
            return Self::from_number(number);
        }
        let name = text.strip_prefix("SIG").unwrap_or(text);
        (1..=31u8)
            .zip(NAMES)
            .find(|(_, known)| *known == name)
            .map(|(number, _)| Self(number))
            .ok_or(UnknownSignal)
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Debug for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SIG{}", self.name())
    }
}

impl Serialize for Signal {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for Signal {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "expected a signal's name such as \"INT\", or a number from 1 to 31")]
        enum NameOrNumber<'a> {
            Number(i64),
            Name(#[serde(borrow)] Cow<'a, str>),
        }
        match NameOrNumber::deserialize(deserializer)? {
            NameOrNumber::Number(number) => Self::from_number(number),
            NameOrNumber::Name(name) => name.parse(),
        }
        .map_err(serde::de::Error::custom)
    }
}

impl utoipa::PartialSchema for Signal {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
        use utoipa::openapi::schema::{ObjectBuilder, OneOfBuilder, Type};
        OneOfBuilder::new()
            .item(ObjectBuilder::new().schema_type(Type::String).examples(["INT"]))
            .item(ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(1)).maximum(Some(31)))
            .into()
    }
}

impl utoipa::ToSchema for Signal {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_mean_the_same() {
        for text in [r#""INT""#, r#""SIGINT""#, "2", r#""2""#] {
            assert_eq!(serde_json::from_str::<Signal>(text).unwrap(), Signal::INT, "{text}");
        }
        assert_eq!((Signal::KILL.name(), Signal::TERM.name()), ("KILL", "TERM"));
    }

    #[test]
    fn what_is_no_signal_is_refused() {
        for text in ["0", "32", "-1", "1e3", r#""int""#, r#""SIG""#, "null", r#""SIGSIGINT""#] {
            assert!(serde_json::from_str::<Signal>(text).is_err(), "{text}");
        }
    }
}
