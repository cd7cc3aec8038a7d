//! What a key may do, and what of it the key may hand on. A key never hands on more than it has, so no chain of keys
//! ends with one that may do more, or lives longer, than the first.

use space_api::{
    keys::Role,
    scopes::{Scope, ScopeSet},
};
use space_types::{ProjectId, TenantId};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Grants {
    pub(crate) tenant_id: TenantId,
    /// The only project that the key sees; none: all of the tenant.
    pub(crate) project_id: Option<ProjectId>,
    pub(crate) role: Role,
    pub(crate) scopes: ScopeSet,
    /// Unix milliseconds by the database's clock.
    pub(crate) expires_at: Option<i64>,
}

/// What somebody can see: a tenant, or one project of it. Every look-up takes one, so that what is beyond can't be
/// told from what never was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reach {
    pub(crate) tenant_id: TenantId,
    pub(crate) project_id: Option<ProjectId>,
}

impl Reach {
    pub(crate) fn sees(&self, tenant: TenantId, project: ProjectId) -> bool {
        self.tenant_id == tenant && self.project_id.is_none_or(|own| own == project)
    }

    /// Narrowed to a project, if that is asked for. `None`: nothing is left.
    pub(crate) fn within(self, project: Option<ProjectId>) -> Option<Self> {
        match (self.project_id, project) {
            (Some(own), Some(asked)) if own != asked => None,
            (own, asked) => Some(Self { project_id: own.or(asked), ..self }),
        }
    }
}

/// Why a key may not do something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Lack {
    #[error("this takes an admin's key")]
    Admin,
    #[error("this takes a key with the scope `{0}`")]
    Scope(Scope),
    #[error("a key of one project can't make or rotate one that sees more")]
    Project,
    #[error("a key can't hand on the scope `{0}` without having it")]
    Grant(Scope),
    #[error("a key can't make or rotate one that outlives it")]
    Time,
}

impl Grants {
    pub(crate) fn is_admin(&self) -> bool {
        self.role == Role::Admin
    }

    pub(crate) fn reach(&self) -> Reach {
        Reach { tenant_id: self.tenant_id, project_id: self.project_id }
    }

    pub(crate) fn require(&self, scope: Scope) -> Result<(), Lack> {
        if self.scopes.contains(scope) { Ok(()) } else { Err(Lack::Scope(scope)) }
    }

    /// Whether somebody with these grants may be given the secret of a key with those of `other`.
    pub(crate) fn require_all_of(&self, other: &Self) -> Result<(), Lack> {
        let foreign = other.tenant_id != self.tenant_id || other.is_admin();
        if foreign && !self.is_admin() {
            return Err(Lack::Admin);
        }
        if self.project_id.is_some() && other.project_id != self.project_id {
            return Err(Lack::Project);
        }
        if let Some(scope) = other.scopes.first_beyond(self.scopes) {
            return Err(Lack::Grant(scope));
        }
        match (self.expires_at, other.expires_at) {
            (Some(_), None) => Err(Lack::Time),
            (Some(own), Some(asked)) if asked > own => Err(Lack::Time),
            (Some(_) | None, Some(_)) | (None, None) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn grants() -> impl Strategy<Value = Grants> {
        let tenant = prop_oneof![Just(1u128), Just(2)];
        let scopes = proptest::collection::vec(proptest::sample::select(Scope::ALL), 0..5);
        let project = proptest::option::of(1..3u128);
        (tenant, project, any::<bool>(), scopes, proptest::option::of(0..3i64)).prop_map(
            |(tenant, project, admin, scopes, expires_at)| Grants {
                project_id: project
                    .filter(|_| !admin)
                    .map(|id| ProjectId::from_uuid(uuid::Uuid::from_u128(tenant * 10 + id))),
                tenant_id: TenantId::from_uuid(uuid::Uuid::from_u128(tenant)),
                role: if admin { Role::Admin } else { Role::Member },
                scopes: if admin { ScopeSet::all() } else { scopes.into_iter().collect() },
                expires_at,
            },
        )
    }

    proptest! {
        #[test]
        fn no_chain_of_keys_ends_with_more_than_it_began_with(
            first in grants(), second in grants(), third in grants(),
        ) {
            prop_assert_eq!(first.require_all_of(&first), Ok(()));
            if first.require_all_of(&second).is_ok() && second.require_all_of(&third).is_ok() {
                prop_assert_eq!(first.require_all_of(&third), Ok(()));
            }
            if first.require_all_of(&second).is_ok() {
                for scope in Scope::ALL {
                    prop_assert!(second.require(*scope).is_err() || first.require(*scope).is_ok());
                }
                prop_assert!(first.is_admin() || !second.is_admin());
                let project = ProjectId::from_uuid(uuid::Uuid::from_u128(11));
                let sees = |grants: &Grants| grants.reach().sees(grants.tenant_id, project);
                prop_assert!(first.is_admin() || !sees(&second) || sees(&first));
            }
        }
    }
}
