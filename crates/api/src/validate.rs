//! Checks that several requests share, and the errors they answer. Pure: what can't be known from the
//! request alone (does the template exist, is there room) is the server's business.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::limits;

/// One field that is not as it must be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FieldError {
    /// Where in the request: `argv[0]`, `env.PATH`, a query parameter's or header's name.
    pub field: String,
    /// What is wrong and what would be right.
    pub detail: String,
}

/// All that is wrong with a request; never empty as an error.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldErrors(Vec<FieldError>);

impl FieldErrors {
    pub fn one(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self(vec![FieldError { field: field.into(), detail: detail.into() }])
    }

    pub fn add(&mut self, field: impl Into<String>, detail: impl Into<String>) {
        self.0.push(FieldError { field: field.into(), detail: detail.into() });
    }

    /// Adds the error unless `holds`.
    pub fn require(&mut self, holds: bool, field: &str, detail: impl Into<String>) {
        if !holds {
            self.add(field, detail);
        }
    }

    pub fn as_slice(&self) -> &[FieldError] {
        &self.0
    }

    pub fn into_vec(self) -> Vec<FieldError> {
        self.0
    }

    /// `Ok` when nothing was added.
    pub fn finish(self) -> Result<(), Self> {
        if self.0.is_empty() { Ok(()) } else { Err(self) }
    }
}

/// Letters, digits, `-`, `_` and `.`, beginning with a letter or digit.
pub(crate) fn check_name(errors: &mut FieldErrors, field: &str, name: &str) {
    errors.require(
        is_word(name, limits::NAME_CHARS, "-_."),
        field,
        format!(
            "must have 1 to {} letters, digits, `-`, `_` or `.` and begin with a letter or digit",
            limits::NAME_CHARS
        ),
    );
}

pub(crate) fn check_labels(errors: &mut FieldErrors, labels: &BTreeMap<String, String>) {
    errors.require(labels.len() <= limits::LABELS, "labels", format!("at most {} labels", limits::LABELS));
    for (key, value) in labels {
        check_label(errors, "labels", key, value);
    }
}

pub(crate) fn check_label(errors: &mut FieldErrors, field: &str, key: &str, value: &str) {
    if !is_word(key, limits::LABEL_KEY_CHARS, "-_./") {
        errors.add(
            format!("{field}.{}", shortened(key)),
            format!(
                "a label's key has 1 to {} letters, digits, `-`, `_`, `.` or `/` and begins with a letter or digit",
                limits::LABEL_KEY_CHARS
            ),
        );
    } else if value.len() > limits::LABEL_VALUE_BYTES || value.chars().any(char::is_control) {
        errors.add(
            format!("{field}.{key}"),
            format!(
                "a label's value has at most {} bytes and no control characters",
                limits::LABEL_VALUE_BYTES
            ),
        );
    }
}

pub(crate) fn check_env(errors: &mut FieldErrors, env: &BTreeMap<String, String>) {
    errors.require(
        env.len() <= limits::ENV_VARIABLES,
        "env",
        format!("at most {} variables", limits::ENV_VARIABLES),
    );
    errors.require(
        env_bytes(env) <= limits::ENV_BYTES,
        "env",
        format!("at most {} bytes of names and values together", limits::ENV_BYTES),
    );
    for (name, value) in env {
        if !is_env_name(name) {
            errors.add(
                format!("env.{}", shortened(name)),
                "a variable's name has letters, digits and `_`, and does not begin with a digit",
            );
        } else if value.contains('\0') {
            errors.add(format!("env.{name}"), "a variable's value has no NUL");
        }
    }
}

/// Names and values, with one byte each for `=` and the end.
pub(crate) fn env_bytes(env: &BTreeMap<String, String>) -> usize {
    env.iter().map(|(name, value)| name.len() + value.len() + 2).sum()
}

fn is_env_name(name: &str) -> bool {
    (1..=limits::ENV_NAME_CHARS).contains(&name.len())
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

fn is_word(text: &str, longest: usize, others: &str) -> bool {
    (1..=longest).contains(&text.len())
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || others.contains(c))
}

/// Enough of a hostile key to find it again, and no more.
fn shortened(text: &str) -> String {
    text.chars().take(32).flat_map(char::escape_debug).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(check: impl FnOnce(&mut FieldErrors)) -> Vec<String> {
        let mut errors = FieldErrors::default();
        check(&mut errors);
        errors.into_vec().into_iter().map(|error| error.field).collect()
    }

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn good_labels_and_variables_pass() {
        assert!(fields(|e| check_labels(e, &map(&[("team/name", "a b"), ("0", "")]))).is_empty());
        assert!(fields(|e| check_env(e, &map(&[("_X1", "any\nthing"), ("path", "")]))).is_empty());
    }

    #[test]
    fn each_bad_label_is_named() {
        let long = "k".repeat(limits::LABEL_KEY_CHARS + 1);
        let labels = map(&[("-a", ""), ("", ""), (&long, ""), ("ok", "\u{7}")]);
        let expected =
            ["labels.", "labels.-a", &format!("labels.{}", &long[..32]), "labels.ok"].map(String::from);
        assert_eq!(fields(|e| check_labels(e, &labels)), expected);
    }

    #[test]
    fn each_bad_variable_is_named() {
        let env = map(&[("1A", ""), ("A-B", ""), ("N", "a\0b"), ("Ü", "")]);
        assert_eq!(fields(|e| check_env(e, &env)), ["env.1A", "env.A-B", "env.N", "env.Ü"]);
    }

    #[test]
    fn an_environment_has_a_total_size() {
        let fits = "x".repeat(limits::ENV_BYTES - 3);
        assert!(fields(|e| check_env(e, &map(&[("A", &fits)]))).is_empty());
        assert_eq!(fields(|e| check_env(e, &map(&[("A", &format!("{fits}x"))]))), ["env"]);
    }

    #[test]
    fn a_hostile_key_is_not_echoed_in_full() {
        let labels = map(&[(&"\u{1b}".repeat(5000), "")]);
        assert!(fields(|e| check_labels(e, &labels))[0].len() < 300);
    }
}
