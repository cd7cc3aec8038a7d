//! A sandbox that its node would not take goes to another one.

use space_types::{ByteSize, MachineClass, NodeId, SandboxId};

use super::{Store, StoreError, placement, signed, triggers, unsigned};

#[derive(sqlx::FromRow)]
struct Refused {
    vcpus: i32,
    memory_bytes: i64,
    disk_bytes: i64,
    held_memory: i64,
}

impl Store {
    /// Moves the reservation of a sandbox that `refused` holds nothing of. False: no other node has room, or the
    /// sandbox has moved on meanwhile.
    pub(crate) async fn sandbox_place_elsewhere(
        &self,
        id: SandboxId,
        generation: u64,
        refused: NodeId,
    ) -> Result<bool, StoreError> {
        let mut tx = self.begin().await?;
        let row: Option<Refused> = sqlx::query_as(
            "select vcpus, memory_bytes, disk_bytes, held_memory from sandboxes \
             where id = $1 and generation = $2 and node_id = $3 and reserved and desired = 'running' \
               and observed in ('pending', 'booting') for update",
        )
        .bind(id.uuid())
        .bind(signed(generation))
        .bind(refused.uuid())
        .fetch_optional(&mut *tx)
        .await?;
        let Some(row) = row else { return Ok(false) };
        let class = MachineClass {
            vcpus: u8::try_from(row.vcpus).unwrap_or(u8::MAX),
            memory: ByteSize::bytes(unsigned(row.memory_bytes)),
        };
        let disk = ByteSize::bytes(unsigned(row.disk_bytes));
        let Some(place) = placement::reserve(&mut tx, class, disk, Some(refused)).await? else {
            return Ok(false);
        };
        placement::adjust(&mut tx, refused, row.vcpus, row.held_memory, false).await?;
        // The other node counts its reports from the beginning.
        sqlx::query(
            "update sandboxes set node_id = $2, held_memory = $3, observed = 'pending', message = null, \
               observed_generation = 0, observed_sequence = 0 where id = $1",
        )
        .bind(id.uuid())
        .bind(place.node.uuid())
        .bind(place.memory)
        .execute(&mut *tx)
        .await?;
        triggers::set(&mut tx, id).await?;
        tx.commit().await?;
        Ok(true)
    }
}
