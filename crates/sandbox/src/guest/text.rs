//! Text that a guest made, on its way to people.

/// At most `limit` bytes of `text`, control characters and what changes the direction of writing escaped.
pub(crate) fn printable(text: &str, limit: usize) -> String {
    let mut shown = String::with_capacity(text.len().min(limit));
    for character in text.chars() {
        let before = shown.len();
        if character.is_control() || is_invisible(character) {
            shown.extend(character.escape_unicode());
        } else {
            shown.push(character);
        }
        if shown.len() > limit {
            shown.truncate(before);
            break;
        }
    }
    shown
}

/// Marks that reorder or hide what stands beside them.
const fn is_invisible(character: char) -> bool {
    matches!(character, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn terminal_escapes_are_shown_and_not_obeyed() {
        assert_eq!(
            printable("no\u{1b}[2J such\nfile \u{202e}x", 256),
            "no\\u{1b}[2J such\\u{a}file \\u{202e}x"
        );
        assert_eq!(printable("a\u{61c}b", 256), "a\\u{61c}b", "an Arabic letter mark");
        assert_eq!(printable("grüße", 256), "grüße");
    }

    proptest! {
        #[test]
        fn no_text_is_longer_than_its_limit(text in "\\PC{0,40}|[\\x00-\\x1f]{0,40}", limit in 0_usize..100) {
            let shown = printable(&text, limit);
            prop_assert!(shown.len() <= limit);
            prop_assert!(!shown.chars().any(char::is_control));
        }
    }
}
