//! How far a reader of a command's events has got.

use std::{fmt, str::FromStr};

/// `<generation>.<sequence>`, as `id:` and `Last-Event-ID` carry it. The generation is the sandbox's: a
/// restore begins another one, and what a reader has seen of the old says nothing about the new.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Position {
    pub generation: u64,
    pub sequence: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected `<generation>.<sequence>`, as the stream's `id:` lines have it")]
pub struct PositionError;

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.generation, self.sequence)
    }
}

impl FromStr for Position {
    type Err = PositionError;

    fn from_str(text: &str) -> Result<Self, PositionError> {
        let (generation, sequence) = text.split_once('.').ok_or(PositionError)?;
        let number = |digits: &str| {
            digits
                .bytes()
                .all(|b| b.is_ascii_digit())
                .then(|| digits.parse().ok())
                .flatten()
                .ok_or(PositionError)
        };
        Ok(Self { generation: number(generation)?, sequence: number(sequence)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_survives_the_round_trip() {
        let position = Position { generation: 3, sequence: u64::MAX };
        assert_eq!(position.to_string().parse(), Ok(position));
    }

    #[test]
    fn what_is_no_position_is_refused() {
        for text in ["", "1", "1.", ".1", "1.2.3", "-1.2", "+1.2", "1. 2", "1.18446744073709551616"] {
            assert_eq!(text.parse::<Position>(), Err(PositionError), "{text}");
        }
    }
}
