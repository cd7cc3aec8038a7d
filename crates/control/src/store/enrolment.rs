//! A node joins: a token and a public key for an id.
//!
//! | token | a node of this name | outcome |
//! |---|---|---|
//! | unknown or expired | | refused |
//! | used | the one that used it, with this key | the same id again: its answer was lost |
//! | used | any other | refused |
//! | fresh | none | a new id |
//! | fresh | with this key | the same id: it lost its certificate, or that expired while it was away |
//! | fresh | another key, never heard of | a new id; the other is forgotten, and with it its certificate |
//! | fresh | another key, heard of | refused |

use space_types::NodeId;
use sqlx::PgConnection;
use uuid::Uuid;

use super::{Store, StoreError};

#[derive(Debug, thiserror::Error)]
pub(crate) enum EnrolError {
    #[error("the join token is unknown, used or expired")]
    Token,
    #[error("a node of this name has joined before")]
    NameTaken,
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<sqlx::Error> for EnrolError {
    fn from(error: sqlx::Error) -> Self {
        Self::Store(error.into())
    }
}

/// A node that wants to join.
pub(crate) struct Enrolment<'a> {
    pub(crate) name: &'a str,
    pub(crate) address: &'a str,
    /// Of its public key; that it has the private one is proven.
    pub(crate) key_hash: [u8; 32],
}

impl Store {
    /// Uses the token up and makes the node, or does neither. Idempotent for the same token and key.
    pub(crate) async fn node_enrol(
        &self,
        token_hash: [u8; 32],
        joining: &Enrolment<'_>,
    ) -> Result<NodeId, EnrolError> {
        let mut tx = self.begin().await?;
        let token: Option<(bool, Option<Uuid>)> = sqlx::query_as(
            "select used_at is not null, node_id from join_tokens \
             where hash = $1 and kind = 'node' and expires_at > now_ms() for update",
        )
        .bind(token_hash.as_slice())
        .fetch_optional(&mut *tx)
        .await?;
        let id = match token.ok_or(EnrolError::Token)? {
            (true, node) => again(&mut tx, node, joining).await?,
            (false, _) => admit(&mut tx, joining).await?,
        };
        sqlx::query(
            "update join_tokens set used_at = coalesce(used_at, now_ms()), node_id = $2 where hash = $1",
        )
        .bind(token_hash.as_slice())
        .bind(id)
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(NodeId::from_uuid(id))
    }

    /// Uses an edge's token up. Idempotent for the same token and key. Nothing else is kept of an edge.
    pub(crate) async fn edge_enrol(
        &self,
        token_hash: [u8; 32],
        key_hash: [u8; 32],
    ) -> Result<(), EnrolError> {
        let used = sqlx::query(
            "update join_tokens set used_at = coalesce(used_at, now_ms()), edge_key_hash = $2 \
             where hash = $1 and kind = 'edge' and expires_at > now_ms() \
               and (used_at is null or edge_key_hash = $2)",
        )
        .bind(token_hash.as_slice())
        .bind(key_hash.as_slice())
        .execute(self.pool())
        .await?;
        if used.rows_affected() == 1 { Ok(()) } else { Err(EnrolError::Token) }
    }
}

/// With a token that `node` has used.
async fn again(
    tx: &mut PgConnection,
    node: Option<Uuid>,
    joining: &Enrolment<'_>,
) -> Result<Uuid, EnrolError> {
    let same: Option<(Uuid,)> = sqlx::query_as(
        "update nodes set address = $4 where id = $1 and name = $2 and key_hash = $3 returning id",
    )
    .bind(node)
    .bind(joining.name)
    .bind(joining.key_hash.as_slice())
    .bind(joining.address)
    .fetch_optional(&mut *tx)
    .await?;
    same.map(|(id,)| id).ok_or(EnrolError::Token)
}

/// With a fresh token.
async fn admit(tx: &mut PgConnection, joining: &Enrolment<'_>) -> Result<Uuid, EnrolError> {
    let known: Option<(Uuid, bool, bool)> = sqlx::query_as(
        "select id, coalesce(key_hash = $2, false), heartbeat_at is null from nodes where name = $1 for update",
    )
    .bind(joining.name)
    .bind(joining.key_hash.as_slice())
    .fetch_optional(&mut *tx)
    .await?;
    match known {
        Some((id, true, _)) => {
            let sql = "update nodes set address = $2 where id = $1";
            sqlx::query(sql).bind(id).bind(joining.address).execute(&mut *tx).await?;
            return Ok(id);
        }
        Some((id, false, true)) => forget(tx, id).await?,
        Some((_, false, false)) => return Err(EnrolError::NameTaken),
        None => {}
    }
    let id = NodeId::new().uuid();
    let inserted = sqlx::query(
        "insert into nodes (id, name, address, key_hash) values ($1, $2, $3, $4) on conflict do nothing",
    )
    .bind(id)
    .bind(joining.name)
    .bind(joining.address)
    .bind(joining.key_hash.as_slice())
    .execute(&mut *tx)
    .await?;
    // Another one may have joined by this name a moment ago.
    if inserted.rows_affected() == 0 { Err(EnrolError::NameTaken) } else { Ok(id) }
}

/// A node that was never heard of has no sandbox: none is placed without a lease.
async fn forget(tx: &mut PgConnection, id: Uuid) -> Result<(), EnrolError> {
    sqlx::query("update join_tokens set node_id = null where node_id = $1")
        .bind(id)
        .execute(&mut *tx)
        .await?;
    sqlx::query("delete from nodes where id = $1").bind(id).execute(&mut *tx).await?;
    Ok(())
}
