//! Guests that mean harm, or merely end badly. Each must stay in its sandbox and get its name right.

use anyhow::Result;
use space_api::sandboxes::CreateSandbox;
use space_e2e::{Sandbox, Server};
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
    let eater = sandbox
        .sh("exec python3 -c 'x = bytearray(1 << 34)\nfor i in range(0, len(x), 4096): x[i] = 1'")
        .await?;
    assert!(eater.exit.signal.is_some() || eater.exit.code == Some(1), "{eater}");
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
    let flood = sandbox.sh_for("yes", 3).await?;
    assert!(flood.exit.timed_out, "{:?}", flood.exit);
    assert_eq!(sandbox.sh("echo alive").await?.stdout(), "alive\n");
    Ok(())
}

/// The token lies on the host in places that a careless design would share; the guest looks everywhere.
#[tokio::test(flavor = "multi_thread")]
async fn root_in_a_guest_never_reads_the_hosts_honeytoken() -> Result<()> {
    let token = "honeytoken-7c1f8a52b9d04e63";
    for place in ["/root/honeytoken", "/var/lib/space/honeytoken", "/run/space/honeytoken"] {
        std::fs::write(place, token)?;
    }
    let sandbox = Sandbox::create().await?;
    let (head, tail) = token.split_at(10);
    // Put together inside, so that the search does not find its own command line.
    let search = format!(
        "t={head}$(printf {tail}); \
         for d in /dev/vd?; do grep -c -a -F \"$t\" $d; done; \
         grep -r -l -s -F \"$t\" /root /home /run /var /etc /proc/[0-9]*/root/run /sys/firmware 2>/dev/null; \
         ls /dev/disk /dev/mapper 2>/dev/null; true"
    );
    let outcome = sandbox.root_sh(&search).await?;
    let hits: Vec<_> = outcome.stdout().lines().filter(|line| *line != "0").map(str::to_owned).collect();
    assert!(hits.is_empty(), "{outcome}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn there_is_no_way_onto_any_network() -> Result<()> {
    let sandbox = Sandbox::create().await?;
    let outcome = sandbox
        .root_sh(
            "for a in 169.254.100.1 169.254.169.254 10.0.0.1 127.0.0.1 8.8.8.8; do \
               for p in 22 53 80 8700; do timeout 1 bash -c \"exec 3<>/dev/tcp/$a/$p\" 2>/dev/null && echo open $a $p; done; \
             done; ip -6 addr; true",
        )
        .await?;
    assert_eq!(outcome.stdout(), "", "{outcome}");
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
