//! Templates. All tenants see all of them; admins publish.

use space_api::{
    Page, PageQuery,
    templates::{PublishRelease, Release, Template},
};
use space_types::TemplateRef;

use super::{App, AppError, auth::Caller, error::Answer, page};
use crate::store::idempotency::Claim;

impl App {
    pub(crate) async fn template_publish(
        &self,
        caller: &Caller,
        request: &PublishRelease,
        claim: Option<&Claim>,
    ) -> Result<Answer<Release>, AppError> {
        caller.require_admin()?;
        request.validate()?;
        Answer::from_claimed(self.store.template_publish(request, claim).await?)
    }

    pub(crate) async fn template_list(&self, query: &PageQuery) -> Result<Page<Template>, AppError> {
        query.validate()?;
        let after: Option<TemplateRef> = page::parse_cursor(query.cursor.as_deref())?;
        let items =
            self.store.template_list(after.as_ref().map(TemplateRef::name), query.limit() + 1).await?;
        Ok(page::page(items, query.limit(), |template| template.name.clone()))
    }

    pub(crate) async fn template_get(&self, name: &str) -> Result<Template, AppError> {
        // What can't be a name can't be asked for either; PostgreSQL takes no NUL.
        let name: TemplateRef = name.parse().map_err(|_unparsed| AppError::NotFound("template"))?;
        self.store.template_get(name.name()).await?.ok_or(AppError::NotFound("template"))
    }
}
