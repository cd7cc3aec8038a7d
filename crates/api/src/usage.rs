//! Usage: what the sandboxes of each project held, by UTC day. `GET /v1/usage`.

use jiff::{ToSpan as _, civil::Date, tz::TimeZone};
use serde::{Deserialize, Serialize};
use space_types::ProjectId;
use utoipa::{IntoParams, ToSchema};

use crate::FieldErrors;

/// Days that one answer covers at most.
const DAYS_MAX: i32 = 366;

/// Query of `GET /v1/usage`: at most 366 days.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct UsageQuery {
    /// The first day, `YYYY-MM-DD`. Absent: 29 days before the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The last day, `YYYY-MM-DD`, inclusive. Absent: today.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Of this project alone. A key of one project always gets that one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project_id: Option<ProjectId>,
}

impl UsageQuery {
    /// The first and the last day.
    pub fn days(&self, now: jiff::Timestamp) -> Result<(Date, Date), FieldErrors> {
        let mut errors = FieldErrors::default();
        let mut parsed = |field, text: Option<&str>| {
            let day = text.map_or(Some(None), |text| day(text).map(Some));
            errors.require(day.is_some(), field, "must be a day, YYYY-MM-DD".to_owned());
            day.flatten()
        };
        let today = now.to_zoned(TimeZone::UTC).date();
        let to = parsed("to", self.to.as_deref()).unwrap_or(today);
        let from = parsed("from", self.from.as_deref()).unwrap_or_else(|| to.saturating_sub(29.days()));
        errors.require(from <= to, "from", "must not be after `to`".to_owned());
        let days = to.since(from).map_or(i32::MAX, |span| span.get_days());
        errors.require(days < DAYS_MAX, "from", format!("must be at most {DAYS_MAX} days up to `to`"));
        errors.finish().map(|()| (from, to))
    }
}

/// Four digits of a year, and no more than a day.
fn day(text: &str) -> Option<Date> {
    let day: Date = text.parse().ok()?;
    (day.year() > 0 && day.to_string() == text).then_some(day)
}

/// Answer of `GET /v1/usage`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Usage {
    pub from: String,
    pub to: String,
    /// By day, then project. Days on which a project had nothing are left out.
    pub items: Vec<UsageDay>,
}

/// What the sandboxes of a project held on a UTC day. Each rounded down once, when it is read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UsageDay {
    pub project_id: ProjectId,
    /// `YYYY-MM-DD`.
    pub day: String,
    /// Seconds of sandboxes that were being created, ran, or were being deleted.
    pub sandbox_seconds: u64,
    /// Seconds times vCPUs of those.
    pub vcpu_seconds: u64,
    /// Seconds times MiB of memory of those.
    pub memory_mib_seconds: u64,
    /// Seconds times MiB of the root drives of all that were not deleted.
    pub disk_mib_seconds: u64,
    /// Sandboxes created.
    pub creates: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_bounded_and_a_wrong_one_is_named() {
        let now = "2026-03-01T23:59:59Z".parse().unwrap();
        let days = |from: Option<&str>, to: Option<&str>| {
            let query = UsageQuery { from: from.map(Into::into), to: to.map(Into::into), project_id: None };
            let found = query.days(now).map(|(from, to)| format!("{from} {to}"));
            found.map_err(|errors| errors.into_vec()[0].field.clone())
        };
        assert_eq!(days(None, None), Ok("2026-01-31 2026-03-01".to_owned()));
        assert_eq!(days(Some("2025-03-01"), Some("2026-03-01")).as_deref(), Ok("2025-03-01 2026-03-01"));
        assert_eq!(days(Some("2025-02-28"), Some("2026-03-01")).unwrap_err(), "from");
        assert_eq!(days(Some("2026-03-02"), None).unwrap_err(), "from");
        assert_eq!(days(None, Some("2026-02-30")).unwrap_err(), "to");
        assert_eq!(days(Some("2026-01-01T00:00:00"), None).unwrap_err(), "from");
    }
}
