//! Quotas, read and set. They are enforced where sandboxes are created, in `store/quotas.rs`.

use space_api::quotas::{Quota, QuotaQuery, QuotaReport, Quotas};
use space_types::{ProjectId, TenantId};

use super::{App, AppError, auth::Caller};

impl App {
    pub(crate) async fn quota_get(&self, caller: &Caller, query: QuotaQuery) -> Result<Quotas, AppError> {
        let reach = caller.reach();
        let Some(reach) = reach.within(query.project_id) else { return Err(AppError::NotFound("project")) };
        let project = match reach.project_id {
            Some(id) => {
                let report = self.store.project_quota(reach.tenant_id, id).await?;
                Some(report.ok_or(AppError::NotFound("project"))?)
            }
            None => None,
        };
        let tenant = match caller.grants.project_id {
            Some(_) => None,
            None => self.store.tenant_quota(reach.tenant_id).await?,
        };
        Ok(Quotas { tenant, project })
    }

    pub(crate) async fn tenant_set_quota(
        &self,
        caller: &Caller,
        id: TenantId,
        quota: &Quota,
    ) -> Result<QuotaReport, AppError> {
        caller.require_admin()?;
        quota.validate()?;
        self.store.tenant_set_quota(id, quota).await?.ok_or(AppError::NotFound("tenant"))
    }

    pub(crate) async fn project_set_quota(
        &self,
        caller: &Caller,
        id: ProjectId,
        quota: &Quota,
    ) -> Result<QuotaReport, AppError> {
        quota.validate()?;
        let set = self.store.project_set_quota(caller.tenant_id, id, quota).await?;
        set.ok_or(AppError::NotFound("project"))
    }
}
