//! `console` blocks of a Markdown text as steps.

use anyhow::{Result, bail, ensure};

use super::pattern::Pattern;

const OPEN: &str = "```console";
const CLOSE: &str = "```";
const PROMPT: &str = "$ ";
/// Before a further line of a command.
const MORE: &str = "> ";

/// One command and what it comes to.
#[derive(Debug)]
pub(super) struct Step {
    /// Of the command in its file, counted from 1.
    pub(super) line: usize,
    /// Several lines where it was continued.
    pub(super) command: String,
    pub(super) expected: Expected,
}

#[derive(Debug, Default)]
pub(super) struct Expected {
    pub(super) output: Vec<Pattern>,
    pub(super) status: i32,
}

/// Where in a block a line stands.
enum Place {
    Outside,
    /// Before the first command.
    Begin,
    Command,
    Output,
    /// Behind an exit status, which is the last line of its step.
    End,
}

/// All steps in their order.
pub(super) fn steps(text: &str) -> Result<Vec<Step>> {
    let mut steps: Vec<Step> = Vec::new();
    let mut place = Place::Outside;
    for (line, text) in (1..).zip(text.lines()) {
        place = match (place, steps.last_mut()) {
            (Place::Outside, _) if text == OPEN => Place::Begin,
            (Place::Outside, _) => Place::Outside,
            (Place::Begin, _) if text == CLOSE => bail!("line {line}: a transcript without a command"),
            (_, _) if text == CLOSE => Place::Outside,
            (_, _) if text.starts_with(PROMPT) => {
                let command = text[PROMPT.len()..].to_owned();
                steps.push(Step { line, command, expected: Expected::default() });
                Place::Command
            }
            (Place::Command, Some(step)) if text == MORE.trim_end() || text.starts_with(MORE) => {
                step.command = format!("{}\n{}", step.command, text.get(MORE.len()..).unwrap_or_default());
                Place::Command
            }
            (Place::Command | Place::Output, Some(step)) => take(step, text),
            (Place::Begin | Place::Command | Place::Output, _) => {
                bail!("line {line}: output before the first command")
            }
            (Place::End, _) => bail!("line {line}: output behind an exit status"),
        };
    }
    ensure!(matches!(place, Place::Outside), "a transcript has no end");
    Ok(steps)
}

/// A line behind a command: output, or its exit status.
fn take(step: &mut Step, text: &str) -> Place {
    let digits = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    if let Some(status) = digits.and_then(|digits| digits.parse::<u8>().ok()).filter(|status| *status > 0) {
        step.expected.status = status.into();
        return Place::End;
    }
    step.expected.output.push(Pattern::parse(text));
    Place::Output
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(lines: &str) -> Result<Vec<Step>> {
        steps(&format!("```console\n{lines}```\n"))
    }

    #[test]
    fn only_console_blocks_are_transcripts() {
        let text = "$ a\n```sh\n$ b\n```\n```console\n$ c\nout\n```\n$ d\n";
        let steps = steps(text).unwrap();
        assert_eq!(steps.len(), 1);
        assert_eq!((steps[0].line, steps[0].command.as_str()), (6, "c"));
        assert_eq!(steps[0].expected.output.len(), 1);
    }

    #[test]
    fn a_command_goes_on_behind_an_angle_and_output_may_begin_with_one() {
        let steps = block("$ cat <<'END'\n> a\n>\n>   b\n> END\na\n\n> b\n").unwrap();
        assert_eq!(steps[0].command, "cat <<'END'\na\n\n  b\nEND");
        assert_eq!(steps[0].expected.output.len(), 3);
    }

    #[test]
    fn a_status_is_the_last_line_of_a_step() {
        let steps = block("$ a\nout\n[7]\n$ b\n").unwrap();
        assert_eq!((steps[0].expected.status, steps[0].expected.output.len()), (7, 1));
        assert_eq!(steps[1].expected.status, 0);
        assert!(block("$ a\n[7]\nout\n").is_err());
    }

    #[test]
    fn what_can_not_be_replayed_is_refused() {
        assert!(block("out\n$ a\n").is_err());
        assert!(block("").is_err());
        assert!(steps("```console\n$ a\n").is_err());
    }
}
