//! Ports of sandboxes for which something was set. They go with their sandbox's deletion, and no sooner: a port's epoch
//! must not begin anew while tokens of it are about.

use std::num::NonZeroU16;

use space_api::ports::{PortToken, PortVisibility};
use space_types::{PortHost, ProjectId, SandboxId};
use sqlx::PgConnection;

use super::{
    Store, StoreError, coded,
    idempotency::{Claim, Claimed},
};
use crate::grants::Reach;

fn visibility(code: &str) -> Result<PortVisibility, StoreError> {
    coded(PortVisibility::from_code(code), "visibility", code)
}

fn epoch(value: i64) -> Result<u32, StoreError> {
    coded(u32::try_from(value).ok(), "epoch", &value.to_string())
}

/// Whether the sandbox is there and not deleted, for the rest of the transaction.
async fn hold(tx: &mut PgConnection, reach: Reach, id: SandboxId) -> Result<bool, StoreError> {
    let found: Option<(i32,)> = sqlx::query_as(
        "select 1 from sandboxes where id = $1 and tenant_id = $2 and ($3::uuid is null or project_id = $3) \
           and desired <> 'deleted' for share",
    )
    .bind(id.uuid())
    .bind(reach.tenant_id.uuid())
    .bind(reach.project_id.map(ProjectId::uuid))
    .fetch_optional(&mut *tx)
    .await?;
    Ok(found.is_some())
}

/// With the sandbox.
pub(super) async fn remove_all(tx: &mut PgConnection, id: SandboxId) -> Result<(), StoreError> {
    sqlx::query("delete from sandbox_ports where sandbox_id = $1").bind(id.uuid()).execute(&mut *tx).await?;
    Ok(())
}

impl Store {
    /// By number, those behind `after`. `None`: no such sandbox.
    pub(crate) async fn port_list(
        &self,
        reach: Reach,
        sandbox: SandboxId,
        after: Option<NonZeroU16>,
        limit: u32,
    ) -> Result<Option<Vec<(NonZeroU16, PortVisibility)>>, StoreError> {
        let mut tx = self.begin().await?;
        if !hold(&mut tx, reach, sandbox).await? {
            return Ok(None);
        }
        let rows: Vec<(i32, String)> = sqlx::query_as(
            "select port, visibility from sandbox_ports where sandbox_id = $1 and port > $2 order by port limit $3",
        )
        .bind(sandbox.uuid())
        .bind(after.map_or(0, |port| i32::from(port.get())))
        .bind(i64::from(limit))
        .fetch_all(&mut *tx)
        .await?;
        let read = |(port, code): (i32, String)| {
            let number = u16::try_from(port).ok().and_then(NonZeroU16::new);
            Ok((coded(number, "port", &port.to_string())?, visibility(&code)?))
        };
        rows.into_iter().map(read).collect::<Result<_, StoreError>>().map(Some)
    }

    /// `None`: no such sandbox.
    pub(crate) async fn port_get(
        &self,
        reach: Reach,
        host: PortHost,
    ) -> Result<Option<PortVisibility>, StoreError> {
        let mut tx = self.begin().await?;
        let is_there = hold(&mut tx, reach, host.sandbox_id).await?;
        tx.commit().await?;
        if !is_there {
            return Ok(None);
        }
        Ok(self.port_setting(host).await?.map(|(visibility, _epoch)| visibility))
    }

    /// Whether there is such a sandbox.
    pub(crate) async fn port_set(
        &self,
        reach: Reach,
        host: PortHost,
        visibility: PortVisibility,
    ) -> Result<bool, StoreError> {
        let mut tx = self.begin().await?;
        if !hold(&mut tx, reach, host.sandbox_id).await? {
            return Ok(false);
        }
        sqlx::query(
            "insert into sandbox_ports (sandbox_id, port, visibility) values ($1, $2, $3) \
             on conflict (sandbox_id, port) do update set visibility = excluded.visibility",
        )
        .bind(host.sandbox_id.uuid())
        .bind(i32::from(host.port.get()))
        .bind(visibility.code())
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(true)
    }

    /// The epoch to sign with; `shown_again` is what a repetition of the request is answered. `None`: no such sandbox.
    pub(crate) async fn port_token_epoch(
        &self,
        reach: Reach,
        host: PortHost,
        claim: Option<&Claim>,
        shown_again: &PortToken,
    ) -> Result<Option<Claimed<u32>>, StoreError> {
        let mut tx = self.begin().await?;
        if !hold(&mut tx, reach, host.sandbox_id).await? {
            return Ok(None);
        }
        if let Some(earlier) = super::idempotency::begin(&mut tx, claim).await? {
            return Ok(Some(earlier.into()));
        }
        let row: Option<(i64,)> =
            sqlx::query_as("select epoch from sandbox_ports where sandbox_id = $1 and port = $2")
                .bind(host.sandbox_id.uuid())
                .bind(i32::from(host.port.get()))
                .fetch_optional(&mut *tx)
                .await?;
        let epoch = row.map_or(Ok(0), |(value,)| epoch(value))?;
        super::idempotency::finish(&mut tx, claim, 201, shown_again).await?;
        tx.commit().await?;
        Ok(Some(Claimed::Done(epoch)))
    }

    /// Makes all tokens so far void. Whether there is such a sandbox.
    pub(crate) async fn port_tokens_revoke(&self, reach: Reach, host: PortHost) -> Result<bool, StoreError> {
        let mut tx = self.begin().await?;
        if !hold(&mut tx, reach, host.sandbox_id).await? {
            return Ok(false);
        }
        sqlx::query(
            "insert into sandbox_ports (sandbox_id, port, epoch) values ($1, $2, 1) \
             on conflict (sandbox_id, port) do update set epoch = sandbox_ports.epoch + 1",
        )
        .bind(host.sandbox_id.uuid())
        .bind(i32::from(host.port.get()))
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(true)
    }

    /// Who may reach the port, and the epoch of good tokens. `None`: no such sandbox, or it was deleted.
    pub(crate) async fn port_setting(
        &self,
        host: PortHost,
    ) -> Result<Option<(PortVisibility, u32)>, StoreError> {
        let row: Option<(Option<String>, Option<i64>)> = sqlx::query_as(
            "select p.visibility, p.epoch from sandboxes s \
             left join sandbox_ports p on p.sandbox_id = s.id and p.port = $2 \
             where s.id = $1 and s.desired <> 'deleted'",
        )
        .bind(host.sandbox_id.uuid())
        .bind(i32::from(host.port.get()))
        .fetch_optional(self.pool())
        .await?;
        let Some((code, value)) = row else { return Ok(None) };
        let visibility = code.map_or(Ok(PortVisibility::default()), |code| visibility(&code))?;
        Ok(Some((visibility, value.map_or(Ok(0), epoch)?)))
    }
}
