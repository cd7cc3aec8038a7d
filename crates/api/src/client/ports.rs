//! Ports of sandboxes.

use std::num::NonZeroU16;

use reqwest::Method;
use space_types::SandboxId;

use super::{Call, Client, ClientError};
use crate::{
    Page, PageQuery,
    ports::{CreatePortToken, Port, PortToken, SetPort},
};

fn path(sandbox: SandboxId, port: NonZeroU16) -> String {
    format!("/v1/sandboxes/{sandbox}/ports/{port}")
}

impl Client {
    /// Those for which something was set.
    pub async fn port_list(&self, sandbox: SandboxId, page: &PageQuery) -> Result<Page<Port>, ClientError> {
        self.list(&format!("/v1/sandboxes/{sandbox}/ports"), page).await
    }

    pub async fn port_get(&self, sandbox: SandboxId, port: NonZeroU16) -> Result<Port, ClientError> {
        self.get(&path(sandbox, port)).await
    }

    pub async fn port_set(
        &self,
        sandbox: SandboxId,
        port: NonZeroU16,
        body: &SetPort,
    ) -> Result<Port, ClientError> {
        self.call(Call::new(Method::PUT, &path(sandbox, port)).body(body)?).await
    }

    pub async fn port_token_create(
        &self,
        sandbox: SandboxId,
        port: NonZeroU16,
        body: &CreatePortToken,
    ) -> Result<PortToken, ClientError> {
        self.post(&format!("{}/tokens", path(sandbox, port)), body).await
    }

    /// Edges refuse the tokens made so far within seconds.
    pub async fn port_tokens_revoke(&self, sandbox: SandboxId, port: NonZeroU16) -> Result<(), ClientError> {
        let path = format!("{}/tokens", path(sandbox, port));
        self.send(&Call::new(Method::DELETE, &path)).await.map(drop)
    }
}
