//! Projects: `POST` and `GET /v1/projects`, `GET`, `PATCH` and `DELETE /v1/projects/{id}`.

use serde::{Deserialize, Serialize};
use space_types::{ProjectId, TenantId};
use utoipa::ToSchema;

use crate::{FieldErrors, Timestamp, validate};

/// Body of `POST /v1/projects`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateProject {
    /// Unique in the tenant. 1 to 63 letters, digits, `-`, `_` or `.`.
    pub name: String,
}

impl CreateProject {
    pub fn validate(&self) -> Result<(), FieldErrors> {
        check(&self.name)
    }
}

/// Body of `PATCH /v1/projects/{id}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UpdateProject {
    /// As for a new one.
    pub name: String,
}

impl UpdateProject {
    pub fn validate(&self) -> Result<(), FieldErrors> {
        check(&self.name)
    }
}

fn check(name: &str) -> Result<(), FieldErrors> {
    let mut errors = FieldErrors::default();
    validate::check_name(&mut errors, "name", name);
    errors.finish()
}

/// A part of a tenant, with sandboxes, quotas and usage of its own, and keys that see nothing else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Project {
    pub id: ProjectId,
    pub tenant_id: TenantId,
    pub name: String,
    /// Whether sandboxes go there for which nobody names a project. Made with the tenant, and there as long.
    pub is_default: bool,
    pub created_at: Timestamp,
}
