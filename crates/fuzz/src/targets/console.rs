//! A guest's console, and its texts on the way to people. The first byte says how the others are cut up.
//!
//! - A kernel panic is found once, where a search of the whole finds one, however the text is cut up.
//! - What is kept of a console are its last bytes.
//! - No text that is shown is longer than its limit, or does anything to a terminal.

use space_sandbox::fuzz;

pub(crate) fn run(bytes: &[u8]) {
    let Some((cut, bytes)) = bytes.split_first() else { return };
    let pieces: Vec<&[u8]> = bytes.chunks(usize::from(*cut).max(1)).collect();
    let (kept, panics) = fuzz::console(&pieces);
    assert_eq!(kept, bytes, "not the last bytes");
    let found = bytes.windows(PANIC.len()).any(|window| window == PANIC);
    assert_eq!(panics, usize::from(found), "panics that were told");

    let text = String::from_utf8_lossy(bytes);
    let limit = usize::from(*cut) * 4;
    let shown = fuzz::printable(&text, limit);
    assert!(shown.len() <= limit, "{} bytes where {limit} are allowed", shown.len());
    let harmless = |character: char| !character.is_control() && !BIDIRECTIONAL.contains(&character);
    assert!(shown.chars().all(harmless), "{shown:?}");
    let is_plain = text.chars().all(|character| character.is_ascii_graphic() || character == ' ');
    if is_plain && text.len() <= limit {
        assert_eq!(shown, text, "plain text is shown as it is");
    }
}

const PANIC: &[u8] = b"Kernel panic - not syncing";
/// Marks and overrides of the direction of writing (Unicode, annex 9).
const BIDIRECTIONAL: [char; 12] = [
    '\u{61c}', '\u{200e}', '\u{200f}', '\u{202a}', '\u{202b}', '\u{202c}', '\u{202d}', '\u{202e}',
    '\u{2066}', '\u{2067}', '\u{2068}', '\u{2069}',
];
