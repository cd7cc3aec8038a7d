//! Projects. A deleted one keeps its row, which usage and late events refer to, and gives its name back.

use space_api::{Timestamp, projects::Project};
use space_types::{KeyId, ProjectId, TenantId};
use sqlx::PgConnection;
use uuid::Uuid;

use super::{
    Store, StoreError,
    idempotency::{Claim, Claimed},
};
use crate::grants::Reach;

pub(super) const DEFAULT_NAME: &str = "default";

#[derive(sqlx::FromRow)]
struct ProjectRow {
    id: Uuid,
    tenant_id: Uuid,
    name: String,
    created_at: i64,
}

impl From<ProjectRow> for Project {
    fn from(row: ProjectRow) -> Self {
        let (id, tenant_id) = (ProjectId::from_uuid(row.id), TenantId::from_uuid(row.tenant_id));
        Self {
            id,
            tenant_id,
            name: row.name,
            is_default: id == default_project(tenant_id),
            created_at: Timestamp::from_unix_milliseconds(row.created_at),
        }
    }
}

/// A tenant's default project has the tenant's own UUID.
pub(crate) const fn default_project(tenant: TenantId) -> ProjectId {
    ProjectId::from_uuid(tenant.uuid())
}

/// What came of a deletion.
#[derive(Debug)]
pub(crate) enum ProjectDeletion {
    /// These keys saw this project alone and are revoked with it.
    Done(Vec<KeyId>),
    /// It has sandboxes that are not deleted.
    InUse,
    NotFound,
}

pub(super) async fn insert(
    tx: &mut PgConnection,
    tenant: TenantId,
    id: ProjectId,
    name: &str,
) -> Result<Project, StoreError> {
    let row: ProjectRow = sqlx::query_as(
        "insert into projects (id, tenant_id, name) values ($1, $2, $3) returning id, tenant_id, name, created_at",
    )
    .bind(id.uuid())
    .bind(tenant.uuid())
    .bind(name)
    .fetch_one(&mut *tx)
    .await?;
    Ok(row.into())
}

impl Store {
    pub(crate) async fn project_create(
        &self,
        tenant: TenantId,
        name: &str,
        claim: Option<&Claim>,
    ) -> Result<Claimed<Project>, StoreError> {
        let mut tx = self.begin().await?;
        if let Some(earlier) = super::idempotency::begin(&mut tx, claim).await? {
            return Ok(earlier.into());
        }
        let project = insert(&mut tx, tenant, ProjectId::new(), name).await?;
        super::idempotency::finish(&mut tx, claim, 201, &project).await?;
        tx.commit().await?;
        Ok(Claimed::Done(project))
    }

    /// Newest first, those older than `before`.
    pub(crate) async fn project_list(
        &self,
        reach: Reach,
        before: Option<ProjectId>,
        limit: u32,
    ) -> Result<Vec<Project>, StoreError> {
        let rows: Vec<ProjectRow> = sqlx::query_as(
            "select id, tenant_id, name, created_at from projects \
             where tenant_id = $1 and ($2::uuid is null or id = $2) and ($3::uuid is null or id < $3) \
               and deleted_at is null order by id desc limit $4",
        )
        .bind(reach.tenant_id.uuid())
        .bind(reach.project_id.map(ProjectId::uuid))
        .bind(before.map(ProjectId::uuid))
        .bind(i64::from(limit))
        .fetch_all(self.pool())
        .await?;
        Ok(rows.into_iter().map(Project::from).collect())
    }

    pub(crate) async fn project_get(
        &self,
        reach: Reach,
        id: ProjectId,
    ) -> Result<Option<Project>, StoreError> {
        let row: Option<ProjectRow> = sqlx::query_as(
            "select id, tenant_id, name, created_at from projects \
             where id = $1 and tenant_id = $2 and ($3::uuid is null or id = $3) and deleted_at is null",
        )
        .bind(id.uuid())
        .bind(reach.tenant_id.uuid())
        .bind(reach.project_id.map(ProjectId::uuid))
        .fetch_optional(self.pool())
        .await?;
        Ok(row.map(Project::from))
    }

    pub(crate) async fn project_rename(
        &self,
        tenant: TenantId,
        id: ProjectId,
        name: &str,
    ) -> Result<Option<Project>, StoreError> {
        let row: Option<ProjectRow> = sqlx::query_as(
            "update projects set name = $3 where id = $1 and tenant_id = $2 and deleted_at is null \
             returning id, tenant_id, name, created_at",
        )
        .bind(id.uuid())
        .bind(tenant.uuid())
        .bind(name)
        .fetch_optional(self.pool())
        .await?;
        Ok(row.map(Project::from))
    }

    /// Every sandbox that is not deleted holds a disk, and creating one takes this row: so of a create and a deletion
    /// at the same time the second to come sees the first.
    pub(crate) async fn project_delete(
        &self,
        tenant: TenantId,
        id: ProjectId,
    ) -> Result<ProjectDeletion, StoreError> {
        let mut tx = self.begin().await?;
        let held: Option<(i64,)> = sqlx::query_as(
            "select held_disk from projects where id = $1 and tenant_id = $2 and deleted_at is null for update",
        )
        .bind(id.uuid())
        .bind(tenant.uuid())
        .fetch_optional(&mut *tx)
        .await?;
        match held {
            None => return Ok(ProjectDeletion::NotFound),
            Some((0,)) => {}
            Some(_) => return Ok(ProjectDeletion::InUse),
        }
        sqlx::query("update projects set deleted_at = now_ms() where id = $1")
            .bind(id.uuid())
            .execute(&mut *tx)
            .await?;
        let keys: Vec<(Uuid,)> = sqlx::query_as(
            "update api_keys set revoked_at = now_ms() where tenant_id = $1 and project_id = $2 \
             and revoked_at is null returning id",
        )
        .bind(tenant.uuid())
        .bind(id.uuid())
        .fetch_all(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(ProjectDeletion::Done(keys.into_iter().map(|(id,)| KeyId::from_uuid(id)).collect()))
    }
}
