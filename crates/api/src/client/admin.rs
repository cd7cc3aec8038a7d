//! Templates, tenants, projects, quotas, keys and nodes.

use reqwest::Method;
use serde::{Serialize, de::DeserializeOwned};
use space_types::{KeyId, ProjectId};

use super::{Call, Client, ClientError};
use crate::{
    Page, PageQuery,
    keys::{CreateKey, Key, KeyCreated, RotateKey},
    nodes::{CreateJoinToken, JoinToken, Node},
    projects::{CreateProject, Project},
    quotas::Quotas,
    templates::{PublishRelease, Release, Template},
    tenants::{CreateTenant, Tenant},
    usage::{Usage, UsageQuery},
};

impl Client {
    pub async fn release_publish(&self, body: &PublishRelease) -> Result<Release, ClientError> {
        self.post("/v1/templates", body).await
    }

    pub async fn template_list(&self, page: &PageQuery) -> Result<Page<Template>, ClientError> {
        self.list("/v1/templates", page).await
    }

    pub async fn template_get(&self, name: &str) -> Result<Template, ClientError> {
        self.get(&format!("/v1/templates/{name}")).await
    }

    pub async fn tenant_create(&self, body: &CreateTenant) -> Result<Tenant, ClientError> {
        self.post("/v1/tenants", body).await
    }

    pub async fn tenant_list(&self, page: &PageQuery) -> Result<Page<Tenant>, ClientError> {
        self.list("/v1/tenants", page).await
    }

    pub async fn key_create(&self, body: &CreateKey) -> Result<KeyCreated, ClientError> {
        self.post("/v1/keys", body).await
    }

    pub async fn key_list(&self, page: &PageQuery) -> Result<Page<Key>, ClientError> {
        self.list("/v1/keys", page).await
    }

    /// Takes effect at once.
    pub async fn key_revoke(&self, id: KeyId) -> Result<(), ClientError> {
        self.send(&Call::new(Method::DELETE, &format!("/v1/keys/{id}"))).await.map(drop)
    }

    /// Another secret for the same key.
    pub async fn key_rotate(&self, id: KeyId, body: &RotateKey) -> Result<KeyCreated, ClientError> {
        self.post(&format!("/v1/keys/{id}/rotate"), body).await
    }

    pub async fn project_create(&self, body: &CreateProject) -> Result<Project, ClientError> {
        self.post("/v1/projects", body).await
    }

    pub async fn project_list(&self, page: &PageQuery) -> Result<Page<Project>, ClientError> {
        self.list("/v1/projects", page).await
    }

    pub async fn project_delete(&self, id: ProjectId) -> Result<(), ClientError> {
        self.send(&Call::new(Method::DELETE, &format!("/v1/projects/{id}"))).await.map(drop)
    }

    pub async fn quota_get(&self, project: Option<ProjectId>) -> Result<Quotas, ClientError> {
        let project = project.map(|id| ("project_id", id.to_string()));
        self.call(Call::new(Method::GET, "/v1/quota").query(project)).await
    }

    pub async fn usage_get(&self, query: &UsageQuery) -> Result<Usage, ClientError> {
        let project = query.project_id.map(|id| ("project_id", id.to_string()));
        let days = [("from", &query.from), ("to", &query.to)];
        let days = days.into_iter().filter_map(|(name, day)| Some((name, day.clone()?)));
        self.call(Call::new(Method::GET, "/v1/usage").query(project.into_iter().chain(days))).await
    }

    pub async fn node_list(&self, page: &PageQuery) -> Result<Page<Node>, ClientError> {
        self.list("/v1/nodes", page).await
    }

    pub async fn join_token_create(&self, body: &CreateJoinToken) -> Result<JoinToken, ClientError> {
        self.post("/v1/join-tokens", body).await
    }

    pub(super) async fn post_unanswered(&self, path: &str, body: &impl Serialize) -> Result<(), ClientError> {
        self.send(&Call::new(Method::POST, path).body(body)?).await.map(drop)
    }

    pub(super) async fn list<T: DeserializeOwned>(
        &self,
        path: &str,
        page: &PageQuery,
    ) -> Result<Page<T>, ClientError> {
        let limit = page.limit.map(|limit| ("limit", limit.to_string()));
        let cursor = page.cursor.clone().map(|cursor| ("cursor", cursor));
        self.call(Call::new(Method::GET, path).query(limit.into_iter().chain(cursor))).await
    }
}
