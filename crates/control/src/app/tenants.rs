//! Tenants.

use space_api::{
    Page, PageQuery,
    tenants::{CreateTenant, Tenant},
};

use super::{App, AppError, auth::Caller, error::Answer, page};
use crate::store::idempotency::Claim;

impl App {
    pub(crate) async fn tenant_create(
        &self,
        caller: &Caller,
        request: &CreateTenant,
        claim: Option<&Claim>,
    ) -> Result<Answer<Tenant>, AppError> {
        caller.require_admin()?;
        request.validate()?;
        let created = self.store.tenant_create(&request.name, claim).await;
        if created.as_ref().is_err_and(|error| error.violated() == Some("tenants_name_key")) {
            return Err(AppError::Conflict(format!("there is a tenant named {}", request.name)));
        }
        Answer::from_claimed(created?)
    }

    pub(crate) async fn tenant_list(
        &self,
        caller: &Caller,
        query: &PageQuery,
    ) -> Result<Page<Tenant>, AppError> {
        caller.require_admin()?;
        query.validate()?;
        let before = page::parse_cursor(query.cursor.as_deref())?;
        let items = self.store.tenant_list(before, query.limit() + 1).await?;
        Ok(page::page(items, query.limit(), |tenant| tenant.id))
    }
}
