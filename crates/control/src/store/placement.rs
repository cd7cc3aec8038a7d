//! Where a sandbox goes, and what it holds there.
//!
//! A node's row carries the sums of what its sandboxes reserve. Placing is one conditional update: of two that
//! want the last room, the second sees the first's sum once that commits, and no longer fits. A sandbox holds its
//! guest's memory and what its node takes for a microVM beyond that, as the node itself counts.

use space_types::{ByteSize, MachineClass, NodeId};
use sqlx::PgConnection;
use uuid::Uuid;

use super::{StoreError, signed};

/// Times that the best node may fill up between being chosen and being taken.
const ATTEMPTS: u32 = 8;

/// Where a sandbox was placed.
pub(super) struct Place {
    pub(super) node: NodeId,
    /// Memory that the node reserves for it, in bytes.
    pub(super) memory: i64,
}

/// Reserves room on the live node with the most free memory, other than `refused`. `None`: no node has room.
pub(super) async fn reserve(
    tx: &mut PgConnection,
    class: MachineClass,
    disk: ByteSize,
    refused: Option<NodeId>,
) -> Result<Option<Place>, StoreError> {
    for _ in 0..ATTEMPTS {
        let chosen: Option<(Uuid, i64)> = sqlx::query_as(
            "select id, $2 + overhead_memory from nodes where lease_until > now_ms() \
               and reserved_vcpus + $1 <= capacity_vcpus \
               and reserved_memory + $2 + overhead_memory <= capacity_memory \
               and disk_free >= least($3, 1073741824) and id is distinct from $4 \
             order by capacity_memory - reserved_memory desc, id limit 1",
        )
        .bind(i32::from(class.vcpus))
        .bind(signed(class.memory.as_bytes()))
        .bind(signed(disk.as_bytes()))
        .bind(refused.map(NodeId::uuid))
        .fetch_optional(&mut *tx)
        .await?;
        let Some((id, memory)) = chosen else { return Ok(None) };
        let taken = sqlx::query(
            "update nodes set reserved_vcpus = reserved_vcpus + $2, reserved_memory = reserved_memory + $3 \
             where id = $1 and reserved_vcpus + $2 <= capacity_vcpus and reserved_memory + $3 <= capacity_memory",
        )
        .bind(id)
        .bind(i32::from(class.vcpus))
        .bind(memory)
        .execute(&mut *tx)
        .await?
        .rows_affected();
        if taken == 1 {
            return Ok(Some(Place { node: NodeId::from_uuid(id), memory }));
        }
    }
    Ok(None)
}

/// Adds or takes back what one sandbox holds. Adding is unconditional here: it is for a sandbox that turned out
/// to live after its node had been taken for lost.
pub(super) async fn adjust(
    tx: &mut PgConnection,
    node: NodeId,
    vcpus: i32,
    memory: i64,
    holds: bool,
) -> Result<(), StoreError> {
    let sign: i32 = if holds { 1 } else { -1 };
    sqlx::query(
        "update nodes set reserved_vcpus = reserved_vcpus + $2, reserved_memory = reserved_memory + $3 where id = $1",
    )
    .bind(node.uuid())
    .bind(vcpus * sign)
    .bind(memory * i64::from(sign))
    .execute(&mut *tx)
    .await?;
    Ok(())
}
