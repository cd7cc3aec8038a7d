//! Lists and waiting, the same for every resource.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::{FieldErrors, limits};

/// One page of a list, newest entry first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Page<T> {
    pub items: Vec<T>,
    /// Pass it as `cursor` for the next page. Absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// Which page of a list.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct PageQuery {
    /// Entries on a page, 1 to 500; 50 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(minimum = 1, maximum = 500)]
    pub limit: Option<u32>,
    /// `next_cursor` of the page before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

impl PageQuery {
    pub fn limit(&self) -> u32 {
        self.limit.unwrap_or(limits::PAGE_DEFAULT)
    }

    pub fn validate(&self) -> Result<(), FieldErrors> {
        let mut errors = FieldErrors::default();
        check_page(&mut errors, self.limit, self.cursor.as_deref());
        errors.finish()
    }
}

pub(crate) fn check_page(errors: &mut FieldErrors, limit: Option<u32>, cursor: Option<&str>) {
    let allowed = 1..=limits::PAGE_MAX;
    errors.require(
        limit.is_none_or(|limit| allowed.contains(&limit)),
        "limit",
        format!("must be 1 to {}", limits::PAGE_MAX),
    );
    errors.require(
        cursor.is_none_or(|cursor| cursor.len() <= limits::CURSOR_CHARS),
        "cursor",
        "not a cursor that a page answered",
    );
}

/// How long to wait for an operation before answering.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct WaitQuery {
    /// Seconds to wait for the operation to finish, 0 to 300. At their end the answer is the same as
    /// without waiting.
    #[serde(default)]
    #[param(minimum = 0, maximum = 300)]
    pub wait: u32,
}

impl WaitQuery {
    pub fn validate(&self) -> Result<(), FieldErrors> {
        let mut errors = FieldErrors::default();
        errors.require(
            self.wait <= limits::WAIT_SECONDS,
            "wait",
            format!("must be 0 to {} seconds", limits::WAIT_SECONDS),
        );
        errors.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_bounded() {
        let valid = |limit, cursor: Option<&str>| {
            PageQuery { limit, cursor: cursor.map(Into::into) }.validate().is_ok()
        };
        assert!(valid(None, None) && valid(Some(1), Some("abc")) && valid(Some(500), None));
        assert!(!valid(Some(0), None) && !valid(Some(501), None) && !valid(None, Some(&"c".repeat(257))));
    }

    #[test]
    fn waiting_is_bounded() {
        assert!(WaitQuery { wait: 300 }.validate().is_ok());
        assert!(WaitQuery { wait: 301 }.validate().is_err());
    }
}
