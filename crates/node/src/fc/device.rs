//! The device set of every VM. It is frozen the moment a snapshot is taken, so it is the same for all of
//! them; a golden test holds it still.

use serde_json::json;
use space_types::ByteSize;

use super::client::Call;
use crate::place::jail_names;

const KERNEL_COMMAND_LINE: &str = "console=ttyS0 quiet reboot=k panic=1 pci=off ipv6.disable=1 \
     8250.nr_uarts=1 i8042.noaux i8042.nokbd random.trust_cpu=on";
const GUEST_MAC: &str = "06:00:ac:10:00:02";
const GUEST_CID: u32 = 3;
pub(crate) const TAP_NAME: &str = "tap0";
const PLACEHOLDER_DRIVES: [&str; 3] = ["vdb", "vdc", "vdd"];

/// What differs between VMs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MachineShape {
    pub(crate) vcpus: u32,
    pub(crate) memory: ByteSize,
}

fn call(path: impl Into<String>, body: serde_json::Value) -> Call {
    Call { path: path.into(), body }
}

/// What every VM has, whoever claims it.
pub(crate) fn pool_calls() -> Vec<Call> {
    let boot = json!({
        "kernel_image_path": format!("/{}", jail_names::KERNEL),
        "initrd_path": format!("/{}", jail_names::INITRAMFS),
        "boot_args": KERNEL_COMMAND_LINE,
    });
    let network = json!({ "iface_id": "eth0", "host_dev_name": TAP_NAME, "guest_mac": GUEST_MAC });
    let vsock = json!({ "guest_cid": GUEST_CID, "uds_path": format!("/{}", jail_names::VSOCK_SOCKET) });
    let balloon = json!({ "amount_mib": 0, "deflate_on_oom": true, "stats_polling_interval_s": 0 });
    let mut calls = vec![
        call("/boot-source", boot),
        call("/network-interfaces/eth0", network),
        call("/vsock", vsock),
        call("/entropy", json!({})),
        call("/balloon", balloon),
    ];
    calls.extend(PLACEHOLDER_DRIVES.map(placeholder));
    calls
}

fn placeholder(id: &str) -> Call {
    let body = json!({
        "drive_id": id,
        "path_on_host": format!("/{}", jail_names::PLACEHOLDER),
        "is_root_device": false,
        "is_read_only": true,
        "cache_type": "Unsafe",
    });
    call(format!("/drives/{id}"), body)
}

/// What a sandbox adds. Firecracker puts the root device before all others, so it is `vda` although it comes
/// last.
pub(crate) fn claim_calls(shape: MachineShape) -> Vec<Call> {
    let machine = json!({ "vcpu_count": shape.vcpus, "mem_size_mib": shape.memory.as_mib(), "smt": false });
    let root = json!({
        "drive_id": "vda",
        "path_on_host": format!("/{}", jail_names::DISK),
        "is_root_device": true,
        "is_read_only": false,
        "cache_type": "Writeback",
    });
    vec![call("/machine-config", machine), call("/drives/vda", root)]
}

pub(crate) fn start_call() -> Call {
    call("/actions", json!({ "action_type": "InstanceStart" }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_device_set_is_frozen() {
        let shape = MachineShape { vcpus: 2, memory: ByteSize::mib(512) };
        let mut calls = pool_calls();
        calls.extend(claim_calls(shape));
        calls.push(start_call());
        let lines: Vec<String> =
            calls.iter().map(|call| format!("PUT {} {}", call.path, call.body)).collect();
        insta::assert_snapshot!(lines.join("\n"));
    }
}
