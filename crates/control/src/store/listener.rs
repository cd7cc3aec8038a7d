//! Changes told between replicas: one coalesced NOTIFY from each, on a connection of its own. A NOTIFY inside
//! every transaction would take a lock of the whole server with each commit.
//!
//! The message is `<replica> <tenant>/<sandbox>,…`, or `<replica> *` when it would be too long.

use std::str::FromStr as _;

use space_types::{SandboxId, TenantId};
use sqlx::postgres::PgListener;
use uuid::Uuid;

use super::{Store, StoreError, sandbox_changes::Changed};

const CHANNEL: &str = "space_changes";
/// NOTIFY takes less than 8,000 bytes; one change has 66.
const CHANGES_PER_MESSAGE: usize = 100;

/// What another replica told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Told {
    Changes(Vec<Changed>),
    /// Anything may have changed.
    Everything,
}

impl Store {
    /// Tells the other replicas.
    pub(crate) async fn notify(&self, replica: Uuid, changes: &[Changed]) -> Result<(), StoreError> {
        sqlx::query("select pg_notify($1, $2)")
            .bind(CHANNEL)
            .bind(message(replica, changes))
            .execute(self.pool())
            .await?;
        Ok(())
    }

    /// Begins to listen.
    pub(crate) async fn listen(&self) -> Result<PgListener, StoreError> {
        let mut listener = PgListener::connect_with(self.pool()).await?;
        listener.listen(CHANNEL).await?;
        Ok(listener)
    }
}

fn message(replica: Uuid, changes: &[Changed]) -> String {
    if changes.len() > CHANGES_PER_MESSAGE {
        return format!("{} *", replica.simple());
    }
    let items: Vec<String> =
        changes.iter().map(|c| format!("{}/{}", c.tenant_id.label(), c.sandbox_id.label())).collect();
    format!("{} {}", replica.simple(), items.join(","))
}

/// `None`: it was this replica's own.
pub(crate) fn parse(own: Uuid, payload: &str) -> Option<Told> {
    let Some((replica, rest)) = payload.split_once(' ') else { return Some(Told::Everything) };
    if replica == own.simple().to_string() {
        return None;
    }
    let parsed: Option<Vec<Changed>> = rest.split(',').map(parse_change).collect();
    Some(parsed.map_or(Told::Everything, Told::Changes))
}

fn parse_change(text: &str) -> Option<Changed> {
    let (tenant, sandbox) = text.split_once('/')?;
    Some(Changed {
        tenant_id: TenantId::from_uuid(Uuid::from_str(tenant).ok()?),
        sandbox_id: SandboxId::from_uuid(Uuid::from_str(sandbox).ok()?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(count: usize) -> Vec<Changed> {
        (0..count).map(|_| Changed { tenant_id: TenantId::new(), sandbox_id: SandboxId::new() }).collect()
    }

    #[test]
    fn changes_survive_the_round_trip() {
        let (from, own, told) = (Uuid::now_v7(), Uuid::now_v7(), changes(CHANGES_PER_MESSAGE));
        let payload = message(from, &told);
        assert!(payload.len() < 8000);
        assert_eq!(parse(own, &payload), Some(Told::Changes(told)));
        assert_eq!(parse(from, &payload), None);
    }

    #[test]
    fn what_is_too_much_or_unreadable_means_everything() {
        let payload = message(Uuid::now_v7(), &changes(CHANGES_PER_MESSAGE + 1));
        for payload in [payload.as_str(), "", "x y", "x"] {
            assert_eq!(parse(Uuid::now_v7(), payload), Some(Told::Everything), "{payload}");
        }
    }
}
