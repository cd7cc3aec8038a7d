//! The one thing that keys mean here and not in the sandbox: `~.` at the start of a line leaves. `~~` there is one
//! `~`; before any other key `~` is itself. Pure.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    LineStart,
    Tilde,
    Within,
}

#[derive(Debug)]
pub(super) struct Escape(State);

/// What was typed, as the command is to get it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Typed {
    Keys(Vec<u8>),
    Leave,
}

impl Default for Escape {
    fn default() -> Self {
        Self(State::LineStart)
    }
}

impl Escape {
    pub(super) fn type_in(&mut self, keys: &[u8]) -> Typed {
        let mut passed = Vec::with_capacity(keys.len() + 1);
        for key in keys {
            match (self.0, key) {
                (State::LineStart, b'~') => {
                    self.0 = State::Tilde;
                    continue;
                }
                (State::Tilde, b'.') => return Typed::Leave,
                (State::Tilde, b'~') | (State::LineStart | State::Within, _) => {}
                (State::Tilde, _) => passed.push(b'~'),
            }
            passed.push(*key);
            self.0 = if matches!(key, b'\r' | b'\n') { State::LineStart } else { State::Within };
        }
        Typed::Keys(passed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(pieces: &[&str]) -> Option<String> {
        let mut escape = Escape::default();
        let mut all = Vec::new();
        for piece in pieces {
            match escape.type_in(piece.as_bytes()) {
                Typed::Keys(keys) => all.extend(keys),
                Typed::Leave => return None,
            }
        }
        Some(String::from_utf8(all).unwrap())
    }

    #[test]
    fn a_tilde_and_a_dot_leave_at_the_start_of_a_line() {
        for pieces in [&["~."][..], &["ls\r~."], &["ls\r", "~", "."], &["\n~."], &["~~\r~."]] {
            assert_eq!(typed(pieces), None, "{pieces:?}");
        }
    }

    #[test]
    fn everything_else_is_typed() {
        let table: [(&[&str], &str); 6] = [
            (&["cd ~."], "cd ~."),
            (&["~/x"], "~/x"),
            (&["~", "a~."], "~a~."),
            (&["~~."], "~."),
            (&["~\r", "."], "~\r."),
            (&["\u{3}\u{4}\u{1b}[A"], "\u{3}\u{4}\u{1b}[A"),
        ];
        for (pieces, expected) in table {
            assert_eq!(typed(pieces).as_deref(), Some(expected), "{pieces:?}");
        }
    }
}
