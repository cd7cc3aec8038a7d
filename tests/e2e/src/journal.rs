//! The node's own record, read as an operator would read it: which process carries a sandbox, and what is still
//! written down.

use anyhow::{Context, Result};
use rusqlite::{Connection, OpenFlags};
use space_types::SandboxId;

fn open() -> Result<Connection> {
    // Not read-only: a reader of a WAL has to write its place into it.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE;
    let journal = Connection::open_with_flags("/var/lib/space/node/node.db", flags);
    journal.context("cannot open the node's journal")
}

/// The process id of a sandbox's Firecracker.
pub(crate) fn firecracker_pid(sandbox: SandboxId) -> Result<u32> {
    let sql = "select pid from sandboxes join vms using (vm_id) where sandbox_id = ?1";
    let pid = open()?.query_row(sql, [sandbox.to_string()], |row| row.get(0));
    pid.with_context(|| format!("the journal knows no process of {sandbox}"))
}

/// Rows of sandboxes (without the tombstones, which last a day), and of VMs.
pub(crate) fn rows() -> Result<(u32, u32)> {
    let sql = "select (select count(*) from sandboxes where phase <> 'absent'), (select count(*) from vms)";
    Ok(open()?.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?)))?)
}
