//! Where what happened is not what a guide says, for people to read.

use std::fmt::Write as _;

use super::{
    pattern::{Pattern, all_fit},
    shell::Ran,
    transcript::Expected,
};

/// `None`: it happened as told. Else lines that fit, and around them what was told (`-`) and what came (`+`).
pub(super) fn difference(expected: &Expected, ran: &Ran) -> Option<String> {
    // A terminal's lines end with two characters; nobody sees the first.
    let lines: Vec<&str> = ran.output.lines().collect();
    let output = (!all_fit(&expected.output, &lines)).then(|| compare(&expected.output, &lines));
    let status = (expected.status != ran.status).then(|| {
        let shown = |sign: char, status: i32| (status != 0).then(|| format!("  {sign} [{status}]\n"));
        [shown('-', expected.status), shown('+', ran.status)].into_iter().flatten().collect::<String>()
    });
    let found = [output, status].into_iter().flatten().collect::<String>();
    (!found.is_empty()).then_some(found)
}

/// What fits at the beginning and at the end is left as it is; what lies between is shown as told and as it came.
fn compare(patterns: &[Pattern], lines: &[&str]) -> String {
    let fits = |(pattern, line): &(&Pattern, &&str)| **pattern != Pattern::Lines && pattern.fits(line);
    let begin = patterns.iter().zip(lines).take_while(fits).count();
    let (patterns_left, lines_left) = (&patterns[begin..], &lines[begin..]);
    let end = patterns_left.iter().rev().zip(lines_left.iter().rev()).take_while(fits).count();
    let mut text = String::new();
    let mut put = |sign: &str, line: &str| writeln!(text, "  {sign} {line}").unwrap_or_default();
    lines[..begin].iter().for_each(|line| put(" ", line));
    patterns_left[..patterns_left.len() - end].iter().for_each(|pattern| put("-", pattern.text()));
    lines_left[..lines_left.len() - end].iter().for_each(|line| put("+", line));
    lines[lines.len() - end..].iter().for_each(|line| put(" ", line));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(lines: &[&str], status: i32, output: &str, came: i32) -> Option<String> {
        let output_told = lines.iter().map(|line| Pattern::parse(line)).collect();
        difference(
            &Expected { output: output_told, status },
            &Ran { output: output.to_owned(), status: came },
        )
    }

    #[test]
    fn what_is_as_told_makes_no_difference() {
        assert_eq!(told(&["a", "…", "z"], 1, "a\r\nb\nz", 1), None);
        assert_eq!(told(&[], 0, "", 0), None);
    }

    #[test]
    fn only_what_differs_is_marked() {
        assert_eq!(
            told(&["a", "b", "c"], 0, "a\nB\nB\nc\n", 0).unwrap(),
            "    a\n  - b\n  + B\n  + B\n    c\n"
        );
        assert_eq!(told(&["a"], 0, "a\nb\n", 0).unwrap(), "    a\n  + b\n");
        assert_eq!(told(&["a", "b"], 0, "", 0).unwrap(), "  - a\n  - b\n");
    }

    #[test]
    fn a_status_is_shown_where_there_is_one() {
        assert_eq!(told(&["a"], 2, "a\n", 3).unwrap(), "  - [2]\n  + [3]\n");
        assert_eq!(told(&[], 0, "", 9).unwrap(), "  + [9]\n");
    }
}
