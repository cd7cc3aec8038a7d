//! Links between the repository's own documents: each must lead to a file.

use std::fs;
use std::process::Command;

use anyhow::{Result, bail};
use camino::{Utf8Path, Utf8PathBuf};

use crate::{exec, paths};

/// Checks every Markdown file that git knows or would add.
pub(crate) fn check() -> Result<()> {
    let listed = exec::output(
        Command::new("git")
            .args(["ls-files", "--cached", "--others", "--exclude-standard", "*.md"])
            .current_dir(paths::root()),
    )?;
    let broken: Vec<String> = listed.lines().flat_map(|file| broken_in(&paths::root().join(file))).collect();
    if !broken.is_empty() {
        bail!("links that lead nowhere:\n  {}", broken.join("\n  "));
    }
    Ok(())
}

fn broken_in(file: &Utf8Path) -> Vec<String> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let dir = file.parent().unwrap_or(Utf8Path::new("/"));
    targets(&text)
        .into_iter()
        .filter(|target| !dir.join(target).exists())
        .map(|target| format!("{file}: {target}"))
        .collect()
}

/// Relative targets of `[text](target)`, without anchors.
fn targets(text: &str) -> Vec<Utf8PathBuf> {
    text.split("](")
        .skip(1)
        .filter_map(|rest| rest.split([')', ' ']).next())
        .filter(|target| !target.contains("://") && !target.starts_with(['#', '/']))
        .filter(|target| !target.starts_with("mailto:"))
        .filter_map(|target| target.split('#').next())
        .filter(|target| !target.is_empty())
        .map(Utf8PathBuf::from)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_relative_targets_are_files() {
        let text = "[a](b.md#c) [d](https://e.invalid/f) [g](#h) [i](j/k.md)";
        assert_eq!(targets(text), ["b.md", "j/k.md"]);
    }
}
