//! What to do about each problem, from its page.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Context, Result};
use camino::Utf8Path;

/// `HINTS`: by code, the section "What to do" on one line.
pub(super) fn all(pages: &Utf8Path) -> Result<String> {
    let mut hints = BTreeMap::new();
    for page in pages.read_dir_utf8().with_context(|| format!("cannot list {pages}"))? {
        let page = page?;
        // Those of edges lie in a directory: it is no answer of the API's that has them.
        let Some(code) = page.file_name().strip_suffix(".md") else { continue };
        if code != "README" {
            let text = std::fs::read_to_string(page.path())?;
            let hint =
                hint(&text).with_context(|| format!("{} says nothing about what to do", page.path()))?;
            hints.insert(code.to_owned(), hint);
        }
    }
    let mut python = "#: What to do about a problem, by its code.\nHINTS: dict[str, str] = {\n".to_owned();
    for (code, hint) in hints {
        writeln!(python, "    \"{code}\": {},", serde_json::to_string(&hint)?)?;
    }
    Ok(python + "}\n")
}

fn hint(page: &str) -> Option<String> {
    let (_, rest) = page.split_once("## What to do\n")?;
    let section = rest.split("\n## ").next()?;
    let text = section.split_whitespace().collect::<Vec<_>>().join(" ");
    Some(without_links(&text))
}

/// `[text](target)` as its text.
fn without_links(text: &str) -> String {
    let mut parts = text.split("](");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        if let Some(start) = plain.rfind('[') {
            plain.remove(start);
        }
        plain += part.split_once(')').map_or(part, |(_, rest)| rest);
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_section_is_found_and_its_links_are_text() {
        let page = "# x\n\n## What to do\n\nSee [the\nguide](../g.md) now.\n\n## More\nno\n";
        assert_eq!(hint(page).unwrap(), "See the guide now.");
        assert_eq!(hint("# x\n"), None);
    }
}
