//! Quotas: what all sandboxes of a tenant, or of a project, may hold together. `GET /v1/quota`,
//! `PUT /v1/tenants/{id}/quota`, `PUT /v1/projects/{id}/quota`.

use std::fmt;

use serde::{Deserialize, Serialize};
use space_types::ProjectId;
use utoipa::{IntoParams, ToSchema};

use crate::{FieldErrors, limits};

/// What is limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Resource {
    /// Sandboxes that are being created, run, or are being deleted.
    Sandboxes,
    /// Processors of those.
    Vcpus,
    /// Memory of those.
    MemoryMib,
    /// Root drives of all that are not deleted, stopped and failed ones included.
    DiskMib,
}

impl Resource {
    pub const ALL: [Self; 4] = [Self::Sandboxes, Self::Vcpus, Self::MemoryMib, Self::DiskMib];

    pub const fn code(self) -> &'static str {
        match self {
            Self::Sandboxes => "sandboxes",
            Self::Vcpus => "vcpus",
            Self::MemoryMib => "memory_mib",
            Self::DiskMib => "disk_mib",
        }
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

/// Limits, and the body of `PUT …/quota`, which replaces all four. One that is absent or null: for a tenant the
/// installation's, for a project none beyond its tenant's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Quota {
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 1_000_000_000)]
    pub sandboxes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 1_000_000_000)]
    pub vcpus: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 1_000_000_000)]
    pub memory_mib: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 1_000_000_000)]
    pub disk_mib: Option<u64>,
}

impl Quota {
    pub const fn get(&self, resource: Resource) -> Option<u64> {
        match resource {
            Resource::Sandboxes => self.sandboxes,
            Resource::Vcpus => self.vcpus,
            Resource::MemoryMib => self.memory_mib,
            Resource::DiskMib => self.disk_mib,
        }
    }

    pub fn validate(&self) -> Result<(), FieldErrors> {
        let mut errors = FieldErrors::default();
        for resource in Resource::ALL {
            errors.require(
                self.get(resource).is_none_or(|limit| limit <= limits::QUOTA_MAX),
                resource.code(),
                format!("must be at most {}", limits::QUOTA_MAX),
            );
        }
        errors.finish()
    }
}

/// How far a quota is used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct QuotaUse {
    /// What holds now, a default included. Absent: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    pub used: u64,
}

/// All quotas of a tenant or of a project.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct QuotaReport {
    pub sandboxes: QuotaUse,
    pub vcpus: QuotaUse,
    pub memory_mib: QuotaUse,
    pub disk_mib: QuotaUse,
}

impl QuotaReport {
    pub const fn get(&self, resource: Resource) -> QuotaUse {
        match resource {
            Resource::Sandboxes => self.sandboxes,
            Resource::Vcpus => self.vcpus,
            Resource::MemoryMib => self.memory_mib,
            Resource::DiskMib => self.disk_mib,
        }
    }
}

/// Query of `GET /v1/quota`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct QuotaQuery {
    /// Of this project too. A key of one project always gets that one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project_id: Option<ProjectId>,
}

/// Answer of `GET /v1/quota`. Both must leave room for a new sandbox.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Quotas {
    /// Absent for a key of one project, which sees nothing of the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<QuotaReport>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<QuotaReport>,
}

/// Whose quota it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum QuotaOwner {
    Tenant,
    Project,
}

impl fmt::Display for QuotaOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tenant => "tenant",
            Self::Project => "project",
        })
    }
}

/// The quota that a refused request would have exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct QuotaExcess {
    pub of: QuotaOwner,
    pub resource: Resource,
    pub limit: u64,
    pub used: u64,
    pub asked: u64,
}

impl fmt::Display for QuotaExcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { of, resource, limit, used, asked } = self;
        write!(
            f,
            "the {of}'s quota of {resource} is {limit}, {used} are used and {asked} more were asked for"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_beyond_all_sense_is_refused_by_name() {
        assert_eq!(Quota::default().validate(), Ok(()));
        let quota = Quota { memory_mib: Some(limits::QUOTA_MAX + 1), ..Quota::default() };
        assert_eq!(quota.validate().unwrap_err().into_vec()[0].field, "memory_mib");
    }
}
