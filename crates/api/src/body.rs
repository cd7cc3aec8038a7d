//! Reading a JSON body so that an error names the field at fault.

use serde::de::DeserializeOwned;

use crate::{Problem, ProblemCode};

/// Parses a request's body. An empty one counts as `{}`, so that a POST with nothing to say needs no body.
#[expect(clippy::result_large_err, reason = "once a request, and on its way to being rendered")]
pub fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    let body = if body.trim_ascii().is_empty() { b"{}" } else { body };
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    let value = serde_path_to_error::deserialize(&mut deserializer).map_err(|error| problem(&error))?;
    deserializer.end().map_err(|error| unreadable(&error))?;
    Ok(value)
}

fn problem(error: &serde_path_to_error::Error<serde_json::Error>) -> Problem {
    let inner = error.inner();
    if inner.is_syntax() || inner.is_eof() || inner.is_io() {
        return unreadable(inner);
    }
    // serde has no kinds of data errors; its own wording is the only sign.
    let text = without_position(&inner.to_string());
    if let Some(field) = text.strip_prefix("unknown field `").and_then(|rest| rest.split('`').next()) {
        let field: String = field.chars().take(64).collect();
        return Problem::new(ProblemCode::UnknownField, shortened(&text)).with_field(field);
    }
    let path = error.path().to_string();
    let missing = text.strip_prefix("missing field `").and_then(|rest| rest.split('`').next());
    let field = match (path.as_str(), missing) {
        (".", Some(field)) => field.to_owned(),
        (path, Some(field)) => format!("{path}.{field}"),
        (".", None) => return Problem::new(ProblemCode::InvalidRequest, shortened(&text)),
        (path, None) => path.chars().take(128).collect(),
    };
    Problem::new(ProblemCode::InvalidField, format!("{field}: {}", shortened(&text))).with_field(field)
}

fn unreadable(error: &serde_json::Error) -> Problem {
    Problem::new(ProblemCode::InvalidRequest, format!("the body is not JSON: {error}"))
}

/// serde_json adds a position, which the field's name makes superfluous.
fn without_position(text: &str) -> String {
    text.rsplit_once(" at line ").map_or(text, |(message, _)| message).to_owned()
}

/// The message may quote what the caller sent, at any length.
fn shortened(text: &str) -> String {
    text.chars().take(300).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{commands::CreateCommand, sandboxes::CreateSandbox};

    fn refused<T: DeserializeOwned>(body: &str) -> (ProblemCode, Option<String>) {
        let problem = parse::<T>(body.as_bytes()).err().expect("the body to be refused");
        (problem.code, problem.field)
    }

    #[test]
    fn nothing_counts_as_an_empty_object() {
        assert_eq!(parse::<CreateSandbox>(b" \n").unwrap(), CreateSandbox::default());
    }

    #[test]
    fn the_field_at_fault_is_named() {
        use ProblemCode::{InvalidField, InvalidRequest, UnknownField};
        let some = |field: &str| Some(field.to_owned());
        assert_eq!(refused::<CreateSandbox>(r#"{"vcpu":1}"#), (UnknownField, some("vcpu")));
        assert_eq!(refused::<CreateSandbox>(r#"{"vcpus":"1"}"#), (InvalidField, some("vcpus")));
        assert_eq!(refused::<CreateSandbox>(r#"{"vcpus":-1}"#), (InvalidField, some("vcpus")));
        assert_eq!(refused::<CreateSandbox>(r#"{"env":{"A":1}}"#), (InvalidField, some("env.A")));
        assert_eq!(refused::<CreateCommand>("{}"), (InvalidField, some("argv")));
        assert_eq!(refused::<CreateCommand>(r#"{"argv":["a",1]}"#), (InvalidField, some("argv[1]")));
        for body in ["[", "nul", "{} x", "3", r#"{"vcpus":1"#] {
            assert_eq!(refused::<CreateSandbox>(body), (InvalidRequest, None), "{body}");
        }
    }

    #[test]
    fn a_long_value_is_not_echoed_in_full() {
        let body = format!("{{\"{}\":1}}", "x".repeat(100_000));
        let problem = parse::<CreateSandbox>(body.as_bytes()).unwrap_err();
        assert!(problem.detail.len() < 1000 && problem.field.unwrap().len() < 100);
    }
}
