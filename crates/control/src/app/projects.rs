//! Projects. A key of one project sees that one; changing any takes a key of the whole tenant.

use space_api::{
    Page, PageQuery,
    projects::{CreateProject, Project, UpdateProject},
};
use space_types::ProjectId;

use super::{App, AppError, auth::Caller, error::Answer, page};
use crate::store::{
    idempotency::Claim,
    projects::{ProjectDeletion, default_project},
};

const NOT_FOUND: AppError = AppError::NotFound("project");

impl App {
    pub(crate) async fn project_create(
        &self,
        caller: &Caller,
        request: &CreateProject,
        claim: Option<&Claim>,
    ) -> Result<Answer<Project>, AppError> {
        request.validate()?;
        let created = self.store.project_create(caller.tenant_id, &request.name, claim).await;
        Answer::from_claimed(created.map_err(|error| named_twice(error, &request.name))?)
    }

    pub(crate) async fn project_list(
        &self,
        caller: &Caller,
        query: &PageQuery,
    ) -> Result<Page<Project>, AppError> {
        query.validate()?;
        let before = page::parse_cursor(query.cursor.as_deref())?;
        let items = self.store.project_list(caller.reach(), before, query.limit() + 1).await?;
        Ok(page::page(items, query.limit(), |project| project.id))
    }

    pub(crate) async fn project_get(&self, caller: &Caller, id: ProjectId) -> Result<Project, AppError> {
        self.store.project_get(caller.reach(), id).await?.ok_or(NOT_FOUND)
    }

    pub(crate) async fn project_update(
        &self,
        caller: &Caller,
        id: ProjectId,
        request: &UpdateProject,
    ) -> Result<Project, AppError> {
        request.validate()?;
        let renamed = self.store.project_rename(caller.tenant_id, id, &request.name).await;
        renamed.map_err(|error| named_twice(error, &request.name))?.ok_or(NOT_FOUND)
    }

    /// With it go the keys that saw it alone.
    pub(crate) async fn project_delete(&self, caller: &Caller, id: ProjectId) -> Result<(), AppError> {
        if id == default_project(caller.tenant_id) {
            return Err(AppError::Conflict("a tenant's default project can't be deleted".to_owned()));
        }
        match self.store.project_delete(caller.tenant_id, id).await? {
            ProjectDeletion::Done(keys) => {
                for key in keys {
                    self.keys.forget(key);
                }
                Ok(())
            }
            ProjectDeletion::InUse => {
                Err(AppError::Conflict("the project has sandboxes that are not deleted".to_owned()))
            }
            ProjectDeletion::NotFound => Err(NOT_FOUND),
        }
    }
}

fn named_twice(error: crate::store::StoreError, name: &str) -> AppError {
    match error.violated() {
        Some("projects_name") => AppError::Conflict(format!("there is a project named {name}")),
        Some(_) | None => error.into(),
    }
}
