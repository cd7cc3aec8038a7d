//! A SPACE inside an emulated host: what to ship, how to start it, how to tell that it is up.

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Result, bail};
use camino::{Utf8Path, Utf8PathBuf};

use crate::host::expect_success;
use crate::host::machine::Machine;
use crate::{cache, exec, paths};

/// Where things lie inside.
pub(crate) const INSIDE: &str = "/opt/space";
const LOG: &str = "/var/log/space-up.log";

/// PostgreSQL's first start, an image of gigabytes hashed and copied, a probe guest: all of it emulated.
const UP_DEADLINE: Duration = Duration::from_mins(10);

/// The assets as a disk image for the host to mount: copying a template's gigabyte inside would take a minute.
/// Made again when the manifest changed.
pub(crate) fn payload() -> Result<Utf8PathBuf> {
    let (image, stamp) = (paths::space().join("payload.img"), paths::space().join("payload.json"));
    let manifest = fs::read(paths::assets().join("manifest.json"))?;
    if image.is_file() && fs::read(&stamp).is_ok_and(|made_of| made_of == manifest) {
        return Ok(image);
    }
    let part = paths::space().join("payload.part");
    exec::logged(
        "packing the assets",
        "payload",
        // The size is an upper limit; free blocks are holes.
        Command::new("mke2fs")
            .env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin")
            .args(["-q", "-t", "ext4", "-F", "-O", "^has_journal", "-m", "0", "-N", "1024", "-d"])
            .args([&paths::assets(), &part])
            .arg("8G"),
    )?;
    fs::rename(&part, &image)?;
    cache::write_atomic(&stamp, &manifest)?;
    Ok(image)
}

/// Copies the binaries and the Python client in.
pub(crate) fn ship(machine: &Machine) -> Result<()> {
    let started = std::time::Instant::now();
    machine.copy_in(&[paths::bin(), paths::root().join("clients/python")], INSIDE)?;
    eprintln!("shipped the binaries in {}", exec::seconds(started.elapsed()));
    Ok(())
}

/// An emulated guest boots in seconds, and in minutes where other work takes the processor away. There is one
/// processor; small guests that wait are to fit by the dozen.
const SETTINGS: &str = "SPACE_NODED__DEADLINES__BOOT_MS=170000 SPACE_NODED__DEADLINES__FIRECRACKER_MS=120000 \
     SPACE_NODED__CAPACITY__VCPUS=128 \
     SPACE_CONTROLD__NODES__ENSURE_TIMEOUT=200s SPACE_CONTROLD__NODES__CREATE_DEADLINE=280s";

/// Starts `space up` under further `settings`, as a shell assigns variables, and waits until it says that it is up.
pub(crate) fn up(machine: &Machine, settings: &str) -> Result<()> {
    let started = std::time::Instant::now();
    let bar = exec::spinner("starting SPACE inside the emulated host");
    // The log is watched inside, where the process is: its end ends the wait.
    let line = format!(
        "rm -f {LOG}; touch {LOG}; PATH={INSIDE}/bin:$PATH {SETTINGS} {settings} setsid {INSIDE}/bin/space up \
         --assets {INSIDE}/assets >{LOG} 2>&1 </dev/null & pid=$!
         while kill -0 $pid 2>/dev/null; do
             grep -q 'SPACE is up' {LOG} && exit 0
             sleep 0.3
         done
         cat {LOG} >&2; exit 1"
    );
    let ended = machine.run(&line, Some(UP_DEADLINE), Stdio::null())?;
    bar.finish_and_clear();
    expect_success("`space up`", ended)?;
    eprintln!("SPACE is up inside after {}", exec::seconds(started.elapsed()));
    Ok(())
}

/// Brings the logs of a failed run out, next to the host's console.
pub(crate) fn fetch_logs(machine: &Machine, to: &Utf8Path) -> Result<()> {
    fs::create_dir_all(to)?;
    fs::copy(machine.console(), to.join("console.log"))?;
    let wanted = "mkdir -p /tmp/logs && cd /tmp/logs && \
        cp /var/log/space-*.log . 2>/dev/null; \
        cp /var/lib/space/log/* . 2>/dev/null; cp /var/lib/space/logs/* . 2>/dev/null; \
        dmesg >dmesg.log; ps axf >processes.log; df -h >df.log; free -m >memory.log; true";
    if machine.output(wanted).is_err() {
        bail!("the host doesn't answer; its console is in {to}");
    }
    machine.copy_out(&["/tmp/logs".to_owned()], to)
}
