//! Results on standard output: tables and plain lines for people, JSON for programs.

use std::io::{self, Write};

use serde::Serialize;

/// Prints a line. A reader that has gone (`space ls | head -1`) is no error of ours.
pub(crate) fn line(text: &str) {
    let mut out = io::stdout().lock();
    // There is nobody left to tell.
    drop(writeln!(out, "{text}"));
}

/// One JSON document on one line.
pub(crate) fn json(value: &impl Serialize) -> anyhow::Result<()> {
    line(&serde_json::to_string(value)?);
    Ok(())
}

/// Columns as wide as their widest cell; the last one is not padded.
pub(crate) fn table<const N: usize>(head: [&str; N], rows: &[[String; N]]) -> String {
    let head = head.map(str::to_owned);
    let lines: Vec<_> = std::iter::once(&head).chain(rows).collect();
    let width = |column: usize| lines.iter().map(|cells| cells[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    let render = |cells: &&[String; N]| {
        let padded = cells.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    lines.iter().map(render).collect::<Vec<_>>().join("\n")
}

/// Text from elsewhere without what a terminal would take as a command.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() || is_invisible(c) { '\u{fffd}' } else { c }).collect()
}

/// What has no shape of its own and moves, hides or reverses the text around it.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

/// At most `width` characters; of a longer text the beginning and `…`.
pub(crate) fn cut(text: &str, width: usize) -> String {
    match text.char_indices().nth(width.saturating_sub(1)) {
        Some((end, last)) if end + last.len_utf8() < text.len() => format!("{}…", &text[..end]),
        Some(_) | None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let rows = [["a".to_owned(), "x".to_owned()], ["long".to_owned(), String::new()]];
        assert_eq!(table(["ID", "STATE"], &rows), "ID    STATE\na     x\nlong");
    }

    #[test]
    fn a_label_cannot_drive_the_terminal() {
        assert_eq!(plain("a\u{1b}[2Jb"), "a\u{fffd}[2Jb");
        assert_eq!(plain("a\u{202e}b\u{9b}c"), "a\u{fffd}b\u{fffd}c", "nor reverse a line");
    }

    #[test]
    fn what_is_too_long_is_cut_and_says_so() {
        assert_eq!((cut("äöü", 3), cut("äöüß", 3), cut("", 3)), ("äöü".into(), "äö…".into(), String::new()));
    }
}
