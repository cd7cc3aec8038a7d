//! Lines of output as a guide writes them, with `…` for what is different each time.
//!
//! | in a guide | is |
//! |---|---|
//! | `…` as a whole line | one line or more |
//! | `sbx_…` and other ids | that id: 32 hex digits |
//! | `sha256:…` | a digest |
//! | `…Z` as a word | a point in time, to the millisecond |
//! | `…` elsewhere | one character or more, of the same line |
//! | two spaces or more, between words | the same, however many: columns are as wide as what is in them |
//!
//! Everything else is itself, to the character.

use space_types::{
    CommandId, EventId, KeyId, NodeId, OperationId, ProjectId, ReleaseId, SandboxId, TenantId,
};

const ANY: char = '…';
/// What stands before an id's digits.
const IDS: [&str; 9] = [
    SandboxId::PREFIX,
    CommandId::PREFIX,
    OperationId::PREFIX,
    KeyId::PREFIX,
    ProjectId::PREFIX,
    TenantId::PREFIX,
    NodeId::PREFIX,
    ReleaseId::PREFIX,
    EventId::PREFIX,
];
const ID_DIGITS: usize = 32;
const DIGEST: &str = "sha256:";
const DIGEST_DIGITS: usize = 64;
/// A point in time; `d` is a digit.
const TIME: &str = "dddd-dd-ddTdd:dd:dd.dddZ";

/// One line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Pattern {
    Lines,
    Line { text: String, pieces: Vec<Piece> },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Piece {
    Text(String),
    Any,
    Digits(usize),
    Time,
    Gap,
}

impl Pattern {
    pub(super) fn parse(text: &str) -> Self {
        if text.chars().eq([ANY]) {
            return Self::Lines;
        }
        Self::Line { text: text.to_owned(), pieces: pieces(text) }
    }

    /// As it is written.
    pub(super) fn text(&self) -> &str {
        match self {
            Self::Lines => "…",
            Self::Line { text, .. } => text,
        }
    }

    /// Whether it is this line.
    pub(super) fn fits(&self, line: &str) -> bool {
        match self {
            Self::Lines => true,
            Self::Line { pieces, .. } => fit(pieces, line),
        }
    }
}

/// Whether the patterns are all of the lines, in their order.
pub(super) fn all_fit(patterns: &[Pattern], lines: &[&str]) -> bool {
    match patterns.split_first() {
        None => lines.is_empty(),
        Some((Pattern::Lines, rest)) => (1..=lines.len()).any(|taken| all_fit(rest, &lines[taken..])),
        Some((first, rest)) => {
            lines.split_first().is_some_and(|(line, lines)| first.fits(line) && all_fit(rest, lines))
        }
    }
}

fn pieces(text: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut plain = String::new();
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        let is_column = rest.starts_with("  ") && !plain_is_indent(&pieces, &plain);
        let (piece, taken) = if next == ANY {
            varying(&plain, &rest[ANY.len_utf8()..])
        } else if is_column {
            (Piece::Gap, rest.len() - rest.trim_start_matches(' ').len())
        } else {
            plain.push(next);
            rest = &rest[next.len_utf8()..];
            continue;
        };
        if !plain.is_empty() {
            pieces.push(Piece::Text(std::mem::take(&mut plain)));
        }
        pieces.push(piece);
        rest = &rest[taken..];
    }
    if !plain.is_empty() {
        pieces.push(Piece::Text(plain));
    }
    pieces
}

/// Whether nothing but spaces came so far: those are meant as they are.
fn plain_is_indent(pieces: &[Piece], plain: &str) -> bool {
    pieces.is_empty() && plain.chars().all(|char| char == ' ')
}

/// What a `…` between the two is, and how many bytes of the text it takes with it.
fn varying(before: &str, after: &str) -> (Piece, usize) {
    let own = ANY.len_utf8();
    let ends_word = |text: &str| !text.starts_with(|char: char| char.is_alphanumeric());
    if after.starts_with('Z') && ends_word(&after[1..]) && !before.ends_with(char::is_alphanumeric) {
        return (Piece::Time, own + 1);
    }
    if before.ends_with(DIGEST) {
        return (Piece::Digits(DIGEST_DIGITS), own);
    }
    let is_id = |prefix: &&str| {
        before.strip_suffix(*prefix).is_some_and(|before| !before.ends_with(char::is_alphanumeric))
    };
    if IDS.iter().any(is_id) { (Piece::Digits(ID_DIGITS), own) } else { (Piece::Any, own) }
}

fn fit(pieces: &[Piece], line: &str) -> bool {
    let Some((first, rest)) = pieces.split_first() else { return line.is_empty() };
    match first {
        Piece::Text(text) => line.strip_prefix(text.as_str()).is_some_and(|line| fit(rest, line)),
        Piece::Any => {
            let ends = line.char_indices().map(|(at, char)| at + char.len_utf8());
            ends.into_iter().any(|end| fit(rest, &line[end..]))
        }
        Piece::Digits(count) => line.split_at_checked(*count).is_some_and(|(digits, line)| {
            digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) && fit(rest, line)
        }),
        Piece::Time => {
            line.split_at_checked(TIME.len()).is_some_and(|(time, line)| is_time(time) && fit(rest, line))
        }
        Piece::Gap => {
            let behind = line.trim_start_matches(' ');
            line.len() - behind.len() >= 2 && fit(rest, behind)
        }
    }
}

fn is_time(text: &str) -> bool {
    text.bytes().zip(TIME.bytes()).all(|(byte, form)| match form {
        b'd' => byte.is_ascii_digit(),
        form => byte == form,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "01920000000070008000000000000001";

    fn fits(pattern: &str, line: &str) -> bool {
        Pattern::parse(pattern).fits(line)
    }

    #[test]
    fn a_line_without_a_placeholder_is_itself_to_the_character() {
        assert!(fits("a b", "a b") && fits("", ""));
        for other in ["a b ", " a b", "a  b", "A b", "a", "a bc", ""] {
            assert!(!fits("a b", other), "{other:?}");
        }
    }

    #[test]
    fn dots_are_some_of_a_line_and_never_nothing() {
        assert!(fits("a…b…c", "a12b3c") && fits("…x", "axx") && fits("x…", "xä"));
        assert!(fits("say …", "say …"), "a program may say it too");
        for other in ["ab3c", "a1bc", "a1b2", "a1b2cd"] {
            assert!(!fits("a…b…c", other), "{other}");
        }
    }

    #[test]
    fn an_id_is_one_of_its_kind() {
        assert!(fits("sbx_…", &format!("sbx_{ID}")));
        assert!(fits("got sbx_… and", &format!("got sbx_{ID} and")));
        assert!(!fits("sbx_…", &format!("cmd_{ID}")));
        assert!(!fits("sbx_…", "sbx_1"));
        assert!(!fits("sbx_…", &format!("sbx_{ID}0")));
        assert!(!fits("sbx_…", &format!("sbx_{}", ID.replace('0', "x"))));
        assert!(fits("space_…", "space_x"), "a key is no id");
    }

    #[test]
    fn a_digest_and_a_time_have_their_forms() {
        assert!(fits("sha256:…", &format!("sha256:{}", "0f".repeat(32))));
        assert!(!fits("sha256:…", "sha256:0f"));
        assert!(fits("at …Z, x", "at 2026-01-31T07:00:00.123Z, x"));
        assert!(fits("\"…Z\"", "\"2026-01-31T07:00:00.123Z\""));
        for other in
            ["at Z", "at 2026-01-31T07:00:00Z", "at 2026-01-31T07:00:00.12äZ", "at 2026-01-31 07:00:00.123Z"]
        {
            assert!(!fits("at …Z", other), "{other}");
        }
    }

    #[test]
    fn columns_are_as_wide_as_they_are_and_indentation_counts() {
        assert!(fits("ID     STATE", "ID  STATE") && fits("a  b", "a         b"));
        assert!(!fits("a  b", "a b") && !fits("a  b", "ab"));
        assert!(!fits("  a", "   a") && fits("  a  b", "  a    b"));
    }

    #[test]
    fn a_line_of_dots_is_some_lines_and_never_none() {
        let patterns: Vec<_> = ["a", "…", "z"].map(Pattern::parse).into();
        assert!(all_fit(&patterns, &["a", "b", "z"]) && all_fit(&patterns, &["a", "b", "z", "z"]));
        assert!(!all_fit(&patterns, &["a", "z"]));
        assert!(!all_fit(&patterns, &["a", "b", "c"]));
        assert!(!all_fit(&patterns[..1], &["a", "b"]), "more than was told");
        assert!(!all_fit(&patterns[..1], &[]));
    }
}
