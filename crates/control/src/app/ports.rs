//! Ports of sandboxes: who may reach them, and tokens. Bytes never come here; edges carry them.

use std::num::NonZeroU16;

use space_api::{
    Page, PageQuery, Timestamp,
    ports::{CreatePortToken, Port, PortToken, PortVisibility, SetPort, TOKEN_HEADER, TOKEN_PARAMETER},
};
use space_types::{PortClaims, PortHost, SandboxId};

use super::{App, AppError, commands::now_seconds, error::Answer, page, port_names::PortNames};
use crate::{
    grants::Reach,
    store::{StoreError, idempotency::Claim, sandboxes::Route},
};

const NOT_FOUND: AppError = AppError::NotFound("sandbox");

/// What an edge is told of a port.
pub(crate) struct ResolvedPort {
    pub(crate) visibility: PortVisibility,
    pub(crate) epoch: u32,
    /// To be used only while the sandbox runs.
    pub(crate) route: Route,
}

impl App {
    fn port_names(&self) -> Result<&PortNames, AppError> {
        self.port_names.as_ref().ok_or(AppError::NoEdge)
    }

    pub(crate) async fn port_list(
        &self,
        reach: Reach,
        sandbox: SandboxId,
        query: &PageQuery,
    ) -> Result<Page<Port>, AppError> {
        let names = self.port_names()?;
        query.validate()?;
        let after: Option<NonZeroU16> = page::parse_cursor(query.cursor.as_deref())?;
        let ports = self.store.port_list(reach, sandbox, after, query.limit() + 1).await?;
        let ports = ports.ok_or(NOT_FOUND)?;
        let shown = |(port, visibility)| shown(names, PortHost { port, sandbox_id: sandbox }, visibility);
        Ok(page::page(ports.into_iter().map(shown).collect(), query.limit(), |port| port.port))
    }

    pub(crate) async fn port_get(&self, reach: Reach, host: PortHost) -> Result<Port, AppError> {
        let names = self.port_names()?;
        let visibility = self.store.port_get(reach, host).await?.ok_or(NOT_FOUND)?;
        Ok(shown(names, host, visibility))
    }

    pub(crate) async fn port_set(
        &self,
        reach: Reach,
        host: PortHost,
        request: SetPort,
    ) -> Result<Port, AppError> {
        let names = self.port_names()?;
        let is_there = self.store.port_set(reach, host, request.visibility).await?;
        if !is_there {
            return Err(NOT_FOUND);
        }
        let (port, visibility) = (host.port, request.visibility.code());
        tracing::info!(sandbox = %host.sandbox_id, port, visibility, "a port was set");
        Ok(shown(names, host, request.visibility))
    }

    pub(crate) async fn port_token_create(
        &self,
        reach: Reach,
        host: PortHost,
        request: CreatePortToken,
        claim: Option<&Claim>,
    ) -> Result<Answer<PortToken>, AppError> {
        let url = self.port_names()?.url(host);
        request.validate()?;
        let expires_at = now_seconds().saturating_add(i64::from(request.valid_seconds));
        let unsigned = PortToken {
            token: None,
            link: None,
            url,
            header: TOKEN_HEADER.to_owned(),
            expires_at: Timestamp::from_unix_milliseconds(expires_at.saturating_mul(1000)),
        };
        let epoch = self.store.port_token_epoch(reach, host, claim, &unsigned).await?.ok_or(NOT_FOUND)?;
        Ok(Answer::from_claimed(epoch)?.map(|epoch| {
            metrics::counter!("space_port_tokens_total").increment(1);
            let token = self.authority.attach.sign_port(&PortClaims { host, epoch, expires_at });
            let link = format!("{}/?{TOKEN_PARAMETER}={token}", unsigned.url);
            PortToken { token: Some(token), link: Some(link), ..unsigned }
        }))
    }

    /// Edges learn of it when they ask again, within seconds.
    pub(crate) async fn port_tokens_revoke(&self, reach: Reach, host: PortHost) -> Result<(), AppError> {
        self.port_names()?;
        if !self.store.port_tokens_revoke(reach, host).await? {
            return Err(NOT_FOUND);
        }
        tracing::info!(sandbox = %host.sandbox_id, port = host.port, "a port's tokens were revoked");
        Ok(())
    }

    /// For edges, which ask without a tenant: whether somebody may pass, the port's setting and the token decide. None:
    /// no such sandbox, or it was deleted.
    pub(crate) async fn port_resolve(&self, host: PortHost) -> Result<Option<ResolvedPort>, StoreError> {
        let Some((visibility, epoch)) = self.store.port_setting(host).await? else { return Ok(None) };
        let Some(route) = self.store.sandbox_route(host.sandbox_id).await? else { return Ok(None) };
        Ok(Some(ResolvedPort { visibility, epoch, route }))
    }
}

fn shown(names: &PortNames, host: PortHost, visibility: PortVisibility) -> Port {
    Port { port: host.port.get(), visibility, url: names.url(host) }
}
