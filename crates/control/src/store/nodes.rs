//! Nodes: their lease, what they offer, and what is on them.

use space_api::{
    Timestamp,
    nodes::{Node, NodeResources, NodeState},
};
use space_node_proto::registry::Capacity;
use space_types::{ByteSize, NodeId, SandboxId};
use uuid::Uuid;

use super::{Store, StoreError, signed, unsigned};

#[derive(sqlx::FromRow)]
struct NodeRow {
    id: Uuid,
    name: String,
    address: String,
    version: String,
    capacity_vcpus: i32,
    capacity_memory: i64,
    disk_free: i64,
    reserved_vcpus: i32,
    reserved_memory: i64,
    live: bool,
    joined_at: i64,
    heartbeat_at: Option<i64>,
    sandboxes: i64,
    disk_used: i64,
}

impl From<NodeRow> for Node {
    fn from(row: NodeRow) -> Self {
        let mib = |bytes: i64| ByteSize::bytes(unsigned(bytes)).as_mib();
        let count = |vcpus: i32| u32::try_from(vcpus).unwrap_or(0);
        Self {
            id: NodeId::from_uuid(row.id),
            name: row.name,
            state: if row.live { NodeState::Ready } else { NodeState::Lost },
            address: row.address,
            version: row.version,
            capacity: NodeResources {
                vcpus: count(row.capacity_vcpus),
                memory_mib: mib(row.capacity_memory),
                disk_mib: mib(row.disk_free),
            },
            used: NodeResources {
                vcpus: count(row.reserved_vcpus),
                memory_mib: mib(row.reserved_memory),
                disk_mib: mib(row.disk_used),
            },
            sandboxes: unsigned(row.sandboxes),
            joined_at: Timestamp::from_unix_milliseconds(row.joined_at),
            last_heartbeat_at: row.heartbeat_at.map(Timestamp::from_unix_milliseconds),
        }
    }
}

/// A heartbeat, checked.
pub(crate) struct Heartbeat<'a> {
    pub(crate) boot_id: &'a str,
    pub(crate) address: &'a str,
    pub(crate) version: &'a str,
    pub(crate) capacity: Capacity,
    pub(crate) lease_ms: i64,
}

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lease {
    pub(crate) fence: u64,
    /// The node had been taken for lost; its sandboxes have to be taken for back.
    pub(crate) was_lost: bool,
}

/// Where to call a node, and with which fence.
#[derive(Debug, Clone)]
pub(crate) struct NodeContact {
    pub(crate) id: NodeId,
    pub(crate) address: String,
    pub(crate) fence: u64,
}

impl Store {
    pub(crate) async fn node_list(
        &self,
        before: Option<NodeId>,
        limit: u32,
    ) -> Result<Vec<Node>, StoreError> {
        let rows: Vec<NodeRow> = sqlx::query_as(
            "select n.id, n.name, n.address, n.version, n.capacity_vcpus, n.capacity_memory, n.disk_free, \
               n.reserved_vcpus, n.reserved_memory, n.lease_until > now_ms() as live, n.joined_at, n.heartbeat_at, \
               (select count(*) from sandboxes s where s.node_id = n.id and s.reserved) as sandboxes, \
               (select coalesce(sum(s.disk_bytes), 0)::bigint from sandboxes s \
                where s.node_id = n.id and s.state <> 'deleted') as disk_used \
             from nodes n where ($1::uuid is null or n.id < $1) order by n.id desc limit $2",
        )
        .bind(before.map(NodeId::uuid))
        .bind(i64::from(limit))
        .fetch_all(self.pool())
        .await?;
        Ok(rows.into_iter().map(Node::from).collect())
    }

    /// Renews the lease. A lease that had ended, or another boot of the machine, gets the next fencing number.
    /// `None`: the node is not known (any more).
    pub(crate) async fn node_heartbeat(
        &self,
        id: NodeId,
        beat: &Heartbeat<'_>,
    ) -> Result<Option<Lease>, StoreError> {
        let row: Option<(i64, bool)> = sqlx::query_as(
            "update nodes n set \
               fence = n.fence + case when n.lease_until < now_ms() or n.boot_id <> $2 then 1 else 0 end, \
               boot_id = $2, address = $3, version = $4, capacity_vcpus = $5, capacity_memory = $6, \
               disk_free = $7, overhead_memory = $9, lease_until = now_ms() + $8, heartbeat_at = now_ms(), lost = false \
             from (select id, lost from nodes where id = $1 for update) old \
             where n.id = old.id returning n.fence, old.lost",
        )
        .bind(id.uuid())
        .bind(beat.boot_id)
        .bind(beat.address)
        .bind(beat.version)
        .bind(i32::try_from(beat.capacity.vcpus).unwrap_or(i32::MAX))
        .bind(signed(beat.capacity.memory_bytes))
        .bind(signed(beat.capacity.disk_free_bytes))
        .bind(beat.lease_ms)
        .bind(signed(beat.capacity.overhead_bytes))
        .fetch_optional(self.pool())
        .await?;
        Ok(row.map(|(fence, was_lost)| Lease { fence: unsigned(fence), was_lost }))
    }

    /// Takes nodes for lost whose lease ended longer than `margin_ms` ago; answers those taken now.
    pub(crate) async fn node_expire(&self, margin_ms: i64) -> Result<Vec<NodeId>, StoreError> {
        let rows: Vec<(Uuid,)> = sqlx::query_as(
            "update nodes set lost = true \
             where not lost and heartbeat_at is not null and lease_until + $1 < now_ms() returning id",
        )
        .bind(margin_ms)
        .fetch_all(self.pool())
        .await?;
        Ok(rows.into_iter().map(|(id,)| NodeId::from_uuid(id)).collect())
    }

    /// Sandboxes whose mark disagrees with their node's: to be taken for lost (`true`) or for back.
    pub(crate) async fn node_lost_mismatches(
        &self,
        limit: u32,
    ) -> Result<Vec<(SandboxId, bool)>, StoreError> {
        let rows: Vec<(Uuid, bool)> = sqlx::query_as(
            "select s.id, n.lost from sandboxes s join nodes n on n.id = s.node_id \
             where s.state <> 'deleted' and s.node_lost <> n.lost and s.observed <> 'absent' limit $1",
        )
        .bind(i64::from(limit))
        .fetch_all(self.pool())
        .await?;
        Ok(rows.into_iter().map(|(id, lost)| (SandboxId::from_uuid(id), lost)).collect())
    }

    pub(crate) async fn node_contact(&self, id: NodeId) -> Result<Option<NodeContact>, StoreError> {
        let row: Option<(String, i64)> = sqlx::query_as("select address, fence from nodes where id = $1")
            .bind(id.uuid())
            .fetch_optional(self.pool())
            .await?;
        Ok(row.map(|(address, fence)| NodeContact { id, address, fence: unsigned(fence) }))
    }

    /// What control knows to run on a node. What only boots there is not meant: the node may undo that.
    pub(crate) async fn node_sandboxes(&self, id: NodeId) -> Result<Vec<SandboxId>, StoreError> {
        let rows: Vec<(Uuid,)> = sqlx::query_as(
            "select id from sandboxes where node_id = $1 and observed = 'running' and state <> 'deleted'",
        )
        .bind(id.uuid())
        .fetch_all(self.pool())
        .await?;
        Ok(rows.into_iter().map(|(id,)| SandboxId::from_uuid(id)).collect())
    }

    /// Whether a tenant has a live sandbox on a node: the condition for a worker's certificate.
    pub(crate) async fn node_serves_tenant(
        &self,
        node: NodeId,
        tenant: space_types::TenantId,
    ) -> Result<bool, StoreError> {
        let (serves,): (bool,) = sqlx::query_as(
            "select exists (select 1 from sandboxes where node_id = $1 and tenant_id = $2 and state <> 'deleted')",
        )
        .bind(node.uuid())
        .bind(tenant.uuid())
        .fetch_one(self.pool())
        .await?;
        Ok(serves)
    }

    /// How many nodes hold a lease, and how many do not.
    pub(crate) async fn node_counts(&self) -> Result<(i64, i64), StoreError> {
        Ok(sqlx::query_as(
            "select count(*) filter (where lease_until > now_ms()), count(*) filter (where lease_until <= now_ms()) \
             from nodes",
        )
        .fetch_one(self.pool())
        .await?)
    }
}
