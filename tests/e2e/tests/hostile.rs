//! Guests that mean harm, or merely end badly. Each must stay in its sandbox and get its name right. And a daemon that was
//! taken over, which must stay within what it is for.

use std::time::Duration;

use anyhow::{Result, ensure};
use space_api::{
    client::StreamConfig,
    commands::{CommandState, CreateCommand},
    sandboxes::CreateSandbox,
    sse::CommandEvent,
};
use space_e2e::{Sandbox, Server, daemons::Daemon, wait};
use space_types::{Reason, SandboxState};

async fn ends_as(script: &str, state: SandboxState, reason: Reason) -> Result<()> {
    let sandbox = Sandbox::create().await?;
    // The VM goes away under the command, so how its stream ends is not the point.
    let _stream_ends_early = sandbox.root_sh(script).await;
    let seen = sandbox.reaches(state).await?;
    assert_eq!(seen.reason, Some(reason));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_power_off_is_a_stop_with_its_name() -> Result<()> {
    ends_as("kill -USR2 1; sleep 30", SandboxState::Stopped, Reason::GuestShutdown).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reboot_is_a_stop_with_its_name() -> Result<()> {
    ends_as("kill -TERM 1; sleep 30", SandboxState::Stopped, Reason::GuestReboot).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reset_behind_the_agents_back_is_a_stop_too() -> Result<()> {
    ends_as("echo b > /proc/sysrq-trigger; sleep 30", SandboxState::Stopped, Reason::GuestExit).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kernel_panic_is_a_failure_with_its_name() -> Result<()> {
    ends_as("echo c > /proc/sysrq-trigger; sleep 30", SandboxState::Failed, Reason::GuestPanic).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_bomb_leaves_the_sandbox_answering() -> Result<()> {
    let sandbox = Sandbox::create().await?;
    let bomb = sandbox.sh_for("bomb() { bomb | bomb & }; bomb; sleep 60", 5).await?;
    assert!(bomb.exit.timed_out || bomb.exit.code.is_some(), "{bomb}");
    let after = sandbox.root_sh("pgrep -c -u user; echo alive").await?;
    assert_eq!(after.stdout(), "0\nalive\n", "{after}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_eats_all_memory_dies_alone() -> Result<()> {
    let sandbox = Sandbox::create().await?;
    let eater =
        sandbox.sh("exec python3 -c 'x = []\nwhile True: x.append(bytearray(b\"x\") * (16 << 20))'").await?;
    // The kernel's choice, and not the program's: an allocation that is refused would end it with a code.
    assert_eq!(eater.exit.signal, Some(9), "{eater}");
    assert_eq!(sandbox.sh("echo alive").await?.stdout(), "alive\n");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_is_the_guests_own() -> Result<()> {
    let sandbox = Sandbox::create().await?;
    let full = sandbox.root_sh("cat /dev/zero > /big; rm /big; echo alive").await?;
    assert!(full.stderr().contains("No space left on device"), "{full}");
    assert_eq!(full.stdout(), "alive\n");
    let sibling = Sandbox::create().await?;
    assert_eq!(sibling.sh("echo fine").await?.stdout(), "fine\n");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn endless_output_ends_in_a_gap_and_not_in_a_hang() -> Result<()> {
    let sandbox = Sandbox::create().await?;
    let client = &sandbox.server.client;
    let argv = ["sh", "-c", "yes | head -c 100000000"].map(str::to_owned).to_vec();
    let created =
        client.command_create(sandbox.id, &CreateCommand { argv, ..CreateCommand::default() }).await?;
    // A reader that starts it and doesn't read on: what nobody takes must not hold the command back.
    let mut slow = client.command_attach(&created.attach, None, StreamConfig::default());
    assert!(matches!(slow.next().await?, Some(CommandEvent::Started(_))));
    wait::until("the end of the flood", Duration::from_mins(5), || async {
        let seen = client.command_get(sandbox.id, created.command.id).await?;
        ensure!(seen.state == CommandState::Exited, "{seen:?}");
        Ok(())
    })
    .await?;
    drop(slow);
    let mut reader = client.command_attach(&created.attach, None, StreamConfig::default());
    let (mut next, mut lost, mut is_told) = (0, 0, false);
    while let Some(event) = reader.next().await? {
        match event {
            CommandEvent::Stdout(output) => {
                assert!(output.offset == next || (output.offset > next && is_told), "silence at {next}");
                lost += output.offset - next;
                next = output.offset + output.data.as_ref().len() as u64;
                is_told = false;
            }
            CommandEvent::Gap(_) => is_told = true,
            _ => {}
        }
    }
    assert_eq!(next, 100_000_000);
    assert!(lost > 0, "100 MB fit nowhere");
    assert_eq!(sandbox.sh("echo alive").await?.stdout(), "alive\n");
    Ok(())
}

const TOKEN_PLACES: [&str; 3] = ["/root/honeytoken", "/var/lib/space/honeytoken", "/run/space/honeytoken"];

/// The token lies on the host in places that a careless design would share; the guest looks everywhere.
#[tokio::test(flavor = "multi_thread")]
async fn root_in_a_guest_never_reads_the_hosts_honeytoken() -> Result<()> {
    let token = "honeytoken-7c1f8a52b9d04e63";
    for place in TOKEN_PLACES {
        std::fs::write(place, token)?;
    }
    let sandbox = Sandbox::create().await?;
    let (head, tail) = token.split_at(10);
    // Put together inside, so that the search does not find its own command line. A token of the guest's own lies
    // there too: it must be found by the same means, or the search proves nothing.
    let search = format!(
        "t={head}$(printf {tail}); u={head}$(printf own); echo \"$u\" > /root/own; sync; \
         for d in /dev/vd?; do dd if=$d bs=1M status=none | tr -d '\\0' | grep -a -o -F -e \"$t\" -e \"$u\"; done | sort -u; \
         grep -r -l -s -F -e \"$t\" -e \"$u\" /root /home /run /var /etc /proc/[0-9]*/root/run /sys/firmware; \
         ls /dev/disk /dev/mapper 2>/dev/null; true"
    );
    let outcome = sandbox.root_sh(&search).await?;
    assert_eq!(outcome.stdout(), format!("{head}own\n/root/own\n"), "{outcome}");
    for place in TOKEN_PLACES {
        std::fs::remove_file(place)?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn there_is_no_way_onto_any_network() -> Result<()> {
    let sandbox = Sandbox::create().await?;
    let outcome = sandbox
        .root_sh(
            "python3 -m http.server 4321 >/dev/null 2>&1 & \
             try() { timeout 1 bash -c \"exec 3<>/dev/tcp/$1/$2\" 2>/dev/null && echo open $1 $2; }; \
             until try 127.0.0.1 4321 > /dev/null; do sleep 0.2; done; \
             for a in 169.254.100.1 169.254.169.254 10.0.0.1 127.0.0.1 8.8.8.8; do \
               for p in 22 53 80 4321 8700; do try $a $p; done; \
             done; ip -6 addr; kill %1",
        )
        .await?;
    // Its own listener is reached by the same means, or the attempts prove nothing.
    assert_eq!(outcome.stdout(), "open 127.0.0.1 4321\n", "{outcome}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_firecracker_fails_its_sandbox_alone() -> Result<()> {
    let (victim, bystander) = (Sandbox::create().await?, Sandbox::create().await?);
    victim.kill_firecracker()?;
    let seen = victim.reaches(SandboxState::Failed).await?;
    assert_eq!(seen.reason, Some(Reason::VmmDied));
    assert_eq!(bystander.sh("echo fine").await?.stdout(), "fine\n");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_class_that_does_not_fit_the_node_is_refused_and_changes_nothing() -> Result<()> {
    let server = Server::get()?;
    let before = server.sandboxes().await?.len();
    let problem =
        server.create_fails(CreateSandbox { vcpus: 8, memory_mib: 8192, ..CreateSandbox::default() }).await?;
    assert_eq!(problem.code.code(), "no_capacity", "{problem:?}");
    assert!(server.sandboxes().await?.len() <= before);
    Ok(())
}

/// Strangers speak to the edge. Control's user can do all of this, so the edge's could if it were the same.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_takes_the_edge_over_reads_no_key_and_no_database() -> Result<()> {
    let select = [
        "/usr/lib/postgresql/15/bin/psql",
        "-h",
        "/var/lib/space/postgres/run",
        "-U",
        "space",
        "-c",
        "select 1",
    ];
    let authority = "/var/lib/space/control/authority/ca.key.pem";
    let signer = "/var/lib/space/control/authority/attach.key.der";
    let admin = "/var/lib/space/control/admin.key";
    for reads in [&["cat", authority][..], &["cat", signer], &["cat", admin], &select] {
        ensure!(Daemon::Control.can(reads)?, "control can't: {reads:?}");
        ensure!(!Daemon::Edge.can(reads)?, "the edge can: {reads:?}");
    }
    ensure!(Daemon::Edge.can(&["cat", "/var/lib/space/edge/authority.pem"])?, "its own it can read");
    for others in ["/var/lib/space/admin.key", "/var/lib/space/credentials.json"] {
        ensure!(std::fs::exists(others)? && !Daemon::Edge.can(&["cat", others])?, "{others}");
    }
    Ok(())
}
