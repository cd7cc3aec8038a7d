//! Guides as tests: the transcripts in `docs/guides` are replayed in one shell, and what comes out must be what they say.
//!
//! ```text
//!   docs/guides/x.md ──transcript──▶ steps: command, output, exit status ──shell──▶ what happened
//!                                                      └──────── pattern ──────────────┘
//! ```
//! All blocks of a guide share a shell, in their order, so a variable of one is there in the next. How a transcript is
//! written is in `CONTRIBUTING.md`.

mod difference;
mod pattern;
mod shell;
mod transcript;

use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use self::{difference::difference, shell::Shell, transcript::Step};

/// Every guide that has a transcript: its file, and what is in it.
pub const GUIDES: [(&str, &str); 6] = [
    ("commands.md", include_str!("../../../docs/guides/commands.md")),
    ("files.md", include_str!("../../../docs/guides/files.md")),
    ("keys.md", include_str!("../../../docs/guides/keys.md")),
    ("ports.md", include_str!("../../../docs/guides/ports.md")),
    ("python.md", include_str!("../../../docs/guides/python.md")),
    ("terminals.md", include_str!("../../../docs/guides/terminals.md")),
];

/// A guide's transcripts, in their order.
#[derive(Debug)]
pub struct Guide {
    name: String,
    steps: Vec<Step>,
}

impl Guide {
    /// Of the file `name`, one of [`GUIDES`].
    pub fn find(name: &str) -> Result<Self> {
        let found = GUIDES.iter().find(|(file, _)| *file == name);
        let (_, text) = found.with_context(|| format!("docs/guides/{name} is not among the guides"))?;
        Self::parse(name, text)
    }

    fn parse(name: &str, text: &str) -> Result<Self> {
        let steps = transcript::steps(text).with_context(|| format!("docs/guides/{name}"))?;
        Ok(Self { name: name.to_owned(), steps })
    }

    /// Runs every command with these variables and, beside `PATH`, no others. It fails with all that came out
    /// differently. A command that isn't done after `deadline` ends the replay.
    pub async fn replay(&self, variables: &[(&str, &str)], deadline: Duration) -> Result<()> {
        let mut shell = Shell::start(variables)?;
        let mut differences = Vec::new();
        for step in &self.steps {
            let place = || format!("docs/guides/{}:{}: $ {}", self.name, step.line, step.command);
            let ran = shell.run(&step.command, deadline).await;
            match ran.map(|ran| difference(&step.expected, &ran)) {
                Ok(None) => {}
                Ok(Some(difference)) => differences.push(format!("{}\n{difference}", place())),
                Err(error) => {
                    differences.push(format!("{}\n{error:#}", place()));
                    break;
                }
            }
        }
        if differences.is_empty() {
            return Ok(());
        }
        bail!("what a guide says (-) is not what happens (+)\n\n{}", differences.join("\n"))
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs, path::Path};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    async fn replay(text: &str) -> Result<()> {
        Guide::parse("x.md", text)?.replay(&[("GREETING", "hello")], PATIENCE).await
    }

    async fn complaint(text: &str) -> String {
        format!("{:#}", replay(text).await.unwrap_err())
    }

    #[test]
    fn every_guide_with_a_transcript_is_listed_and_can_be_read() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guides");
        let mut found = BTreeSet::new();
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let text = fs::read_to_string(&path).unwrap();
            if text.contains("```console") {
                found.insert(path.file_name().unwrap().to_str().unwrap().to_owned());
            }
        }
        assert_eq!(found, GUIDES.iter().map(|(name, _)| (*name).to_owned()).collect());
        for (name, _) in GUIDES {
            assert!(!Guide::find(name).unwrap().steps.is_empty(), "{name}");
        }
    }

    #[tokio::test]
    async fn blocks_share_a_shell_and_its_variables() {
        let text = "```console\n$ NAME=$(echo world)\n```\nthen\n```console\n$ echo $GREETING $NAME\nhello world\n```\n";
        replay(text).await.unwrap();
    }

    #[tokio::test]
    async fn a_line_that_changed_is_told_with_guide_and_line() {
        let said = complaint("# x\n\n```console\n$ printf 'a\\nb\\nc\\n'\na\nB\nc\n```\n").await;
        assert!(
            said.ends_with("docs/guides/x.md:4: $ printf 'a\\nb\\nc\\n'\n    a\n  - B\n  + b\n    c\n"),
            "{said}"
        );
    }

    #[tokio::test]
    async fn all_that_differs_is_told_at_once() {
        let said = complaint("```console\n$ echo a\nb\n$ echo c\n$ echo d\nd\n```\n").await;
        assert!(said.contains("x.md:2: $ echo a\n  - b\n  + a\n"), "{said}");
        assert!(said.contains("x.md:4: $ echo c\n  + c\n"), "{said}");
        assert!(!said.contains("echo d"), "{said}");
    }

    #[tokio::test]
    async fn an_exit_status_that_nobody_told_of_is_a_difference() {
        replay("```console\n$ sh -c 'exit 7'\n[7]\n```\n").await.unwrap();
        assert!(complaint("```console\n$ sh -c 'exit 7'\n```\n").await.ends_with("\n  + [7]\n"));
        assert!(complaint("```console\n$ true\n[7]\n```\n").await.ends_with("\n  - [7]\n"));
    }

    #[tokio::test]
    async fn a_command_that_hangs_ends_the_replay_with_what_it_said() {
        let guide = Guide::parse("x.md", "```console\n$ echo so far; tail -f /dev/null\n$ echo on\n```\n");
        let replayed = guide.unwrap().replay(&[], Duration::from_millis(300)).await;
        let said = format!("{:#}", replayed.unwrap_err());
        assert!(said.contains("x.md:2: ") && said.contains("so far"), "{said}");
        assert!(!said.contains("x.md:3: "), "{said}");
    }
}
