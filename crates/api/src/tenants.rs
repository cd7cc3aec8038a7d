//! Tenants, for admins: `POST` and `GET /v1/tenants`.

use serde::{Deserialize, Serialize};
use space_types::TenantId;
use utoipa::ToSchema;

use crate::{FieldErrors, Timestamp, validate};

/// Body of `POST /v1/tenants`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateTenant {
    /// Unique. 1 to 63 letters, digits, `-`, `_` or `.`.
    pub name: String,
}

impl CreateTenant {
    pub fn validate(&self) -> Result<(), FieldErrors> {
        let mut errors = FieldErrors::default();
        validate::check_name(&mut errors, "name", &self.name);
        errors.finish()
    }
}

/// Whose sandboxes are whose: nothing of one tenant is visible to another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Tenant {
    pub id: TenantId,
    pub name: String,
    pub created_at: Timestamp,
}
