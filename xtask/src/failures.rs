//! What failed, said again at the very end of a run: whoever reads the log of a long run reads its end.

use std::fmt;

/// Lines of a panic's message that are kept.
const MESSAGE_LINES: usize = 6;
/// Of the first of them, which may be a whole record.
const MESSAGE_CHARS: usize = 2000;

/// A test that failed and the beginning of what it said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) test: String,
    pub(crate) message: Vec<String>,
}

impl Failure {
    pub(crate) fn new(test: impl Into<String>, message: impl Into<String>) -> Self {
        Self { test: test.into(), message: vec![message.into()] }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FAILED {}", self.test)?;
        self.message.iter().try_for_each(|line| write!(f, "\n    {line}"))
    }
}

/// The last panic's message among lines that come one by one.
#[derive(Debug, Default)]
struct LastPanic(Vec<String>);

impl LastPanic {
    fn line(&mut self, line: &str) {
        // A test that answers with an error prints it behind its name.
        let error = line.find(" ... Error: ").and_then(|at| line.get(at + 5..));
        let begins = error.or_else(|| line.contains(" panicked at ").then(|| line.trim()));
        if let Some(text) = begins.or_else(|| line.starts_with("Error: ").then_some(line)) {
            self.0 = vec![text.chars().take(MESSAGE_CHARS).collect()];
        } else if !self.0.is_empty() && self.0.len() < MESSAGE_LINES && !line.trim().is_empty() {
            self.0.push(line.trim().to_owned());
        }
    }

    fn take(&mut self) -> Vec<String> {
        std::mem::take(&mut self.0)
    }
}

/// Reads what a test binary prints with one thread and `--nocapture`, where a test's own lines come before its result.
#[derive(Debug)]
pub(crate) struct LibtestFailures<'a> {
    suite: &'a str,
    panic: LastPanic,
    running: Option<String>,
    pub(crate) found: Vec<Failure>,
}

impl<'a> LibtestFailures<'a> {
    pub(crate) fn new(suite: &'a str) -> Self {
        Self { suite, panic: LastPanic::default(), running: None, found: Vec::new() }
    }

    pub(crate) fn line(&mut self, line: &str) {
        self.panic.line(line);
        if let Some(name) = line.strip_prefix("test ").and_then(|rest| rest.split_once(" ... ")) {
            self.running = Some(name.0.to_owned());
        }
        // The result stands behind the name, or on a line of its own where the test has printed.
        let result = line.rsplit_once(" ... ").map_or(line, |(_, result)| result);
        match result.trim() {
            "FAILED" => {
                let test = self.running.take().unwrap_or_else(|| "?".to_owned());
                let test = format!("{}: {test}", self.suite);
                self.found.push(Failure { test, message: self.panic.take() });
            }
            "ok" => drop(self.panic.take()),
            _ => {}
        }
    }
}

/// Reads what nextest prints: a line with the verdict and the name, then what the test printed.
#[derive(Debug, Default)]
pub(crate) struct NextestFailures {
    pub(crate) found: Vec<Failure>,
    panic: LastPanic,
    is_failing: bool,
}

impl NextestFailures {
    const VERDICTS: [&'static str; 7] =
        ["FAIL", "TIMEOUT", "SIGABRT", "SIGSEGV", "SIGKILL", "SIGTERM", "LEAK-FAIL"];

    pub(crate) fn line(&mut self, line: &str) {
        if let Some((verdict, rest)) = line.trim_start().split_once(" [") {
            let name = rest.rsplit_once(") ").or_else(|| rest.rsplit_once("] "));
            match (Self::VERDICTS.contains(&verdict), name) {
                (true, Some((_, name))) => self.failed(name.trim()),
                (true, None) | (false, _) => self.is_failing = false,
            }
            return;
        }
        if self.is_failing {
            self.panic.line(line);
            if let Some(last) = self.found.last_mut()
                && last.message.len() < self.panic.0.len()
            {
                last.message.clone_from(&self.panic.0);
            }
        }
    }

    /// Its output comes next. What failed is told again at the end of the run.
    fn failed(&mut self, name: &str) {
        self.panic = LastPanic::default();
        self.is_failing = self.found.iter().all(|failure| failure.test != name);
        if self.is_failing {
            self.found.push(Failure { test: name.to_owned(), message: Vec::new() });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_that_fails_in_a_host_is_named_with_its_panic() {
        let mut failures = LibtestFailures::new("faults");
        for line in [
            "running 3 tests",
            "test one ... ok",
            "test two ... some output",
            "thread 'two' panicked at tests/e2e/tests/faults.rs:7:5:",
            "assertion `left == right` failed",
            "FAILED",
            "test three ... FAILED",
            "test four ... Error: not running",
            "",
            "Stack backtrace:",
            "FAILED",
            "failures:",
            "    two",
            "test result: FAILED. 1 passed; 3 failed;",
        ] {
            failures.line(line);
        }
        let [two, three, four] = failures.found.as_slice() else { panic!("{:?}", failures.found) };
        assert_eq!(two.test, "faults: two");
        assert_eq!(two.message[1], "assertion `left == right` failed");
        assert_eq!(three, &Failure { test: "faults: three".to_owned(), message: Vec::new() });
        assert_eq!(four.message[0], "Error: not running");
    }

    #[test]
    fn a_test_that_fails_under_nextest_is_named_once() {
        let mut failures = NextestFailures::default();
        let told = [
            "        FAIL [   0.103s] (  2/739) space-node vm::tests::boots",
            "  stderr ───",
            "    thread 'vm::tests::boots' panicked at crates/node/src/vm.rs:1:1:",
            "    no such thing",
            "        PASS [   0.003s] (  3/739) space-node vm::tests::stops",
            "    thread 'x' panicked at somewhere else",
            "     Summary [   1.503s] 12 tests run: 11 passed, 1 failed, 2 skipped",
        ];
        told.iter().chain(&told).for_each(|line| failures.line(line));
        let [failure] = failures.found.as_slice() else { panic!("{:?}", failures.found) };
        assert_eq!(failure.test, "space-node vm::tests::boots");
        assert_eq!(failure.message[1], "no such thing");
        assert_eq!(failure.message.len(), 2);
    }
}
