//! What the machine may do to a node: kill its processes, or have no room.

use std::{fs, time::Duration};

use space_node_proto::common::Phase;
use space_types::SandboxId;
use tonic::Code;

use crate::kit::Kit;

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_firecracker_is_a_failed_sandbox_that_can_be_removed() {
    let mut kit = Kit::started().await;
    let sandbox = SandboxId::new();
    kit.ensure(sandbox).await.unwrap();
    kill_vms(&kit);
    let seen = kit.until(sandbox, |seen| seen.phase() == Phase::Failed).await;
    assert_eq!(seen.reason, "vmm_died");
    assert_eq!(kit.ensure(sandbox).await.unwrap().reason, "vmm_died", "a repetition says the same");
    kit.remove(sandbox, 1).await.unwrap();
    kit.stop();
    kit.nothing_is_left();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vm_that_dies_while_the_daemon_is_away_is_found_dead() {
    let mut kit = Kit::started().await;
    let sandbox = SandboxId::new();
    kit.ensure(sandbox).await.unwrap();
    kit.kill();
    kill_vms(&kit);
    kit.restart().await;
    let seen = kit.until(sandbox, |seen| seen.phase() == Phase::Failed).await;
    assert_eq!(seen.reason, "vmm_died");
    kit.remove(sandbox, 1).await.unwrap();
    kit.stop();
    kit.nothing_is_left();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removal_during_the_boot_cancels_it() {
    let mut kit = Kit::started().await;
    let sandbox = SandboxId::new();
    let ensuring = kit.ensure(sandbox);
    let removing = async {
        kit.until(sandbox, |seen| seen.phase() == Phase::Booting).await;
        kit.remove(sandbox, 2).await
    };
    let (ensured, removed) = tokio::join!(ensuring, removing);
    removed.unwrap();
    assert_eq!(ensured.unwrap_err().code(), Code::Aborted);
    kit.stop();
    kit.nothing_is_left();
}

#[tokio::test(flavor = "multi_thread")]
async fn without_room_nothing_is_made() {
    let mut kit = Kit::new().await;
    kit.settings.memory_mib = 200;
    kit.restart().await;
    let refused = kit.ensure(SandboxId::new()).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert!(refused.message().starts_with("no_capacity"), "{refused}");
    assert!(kit.try_list().await.unwrap().is_empty());
    kit.stop();

    kit.settings.memory_mib = 1000;
    kit.settings.disk_reserve_mib = 1 << 40;
    kit.restart().await;
    let sandbox = SandboxId::new();
    let seen = kit.ensure(sandbox).await.unwrap();
    assert_eq!((seen.phase(), seen.reason.as_str()), (Phase::Failed, "no_disk_space"));
    kit.remove(sandbox, 1).await.unwrap();
    kit.stop();
    kit.nothing_is_left();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_vm_that_died_is_replaced() {
    let mut kit = Kit::started().await;
    wait_for_pool(&kit, &[]).await;
    let first = kit.leftovers().processes;
    kill_vms(&kit);
    wait_for_pool(&kit, &first).await;
    let sandbox = SandboxId::new();
    assert_eq!(kit.ensure(sandbox).await.unwrap().phase(), Phase::Running);
    kit.remove(sandbox, 1).await.unwrap();
    kit.stop();
    kit.nothing_is_left();
}

async fn wait_for_pool(kit: &Kit, without: &[String]) {
    let deadline = tokio::time::Instant::now() + crate::kit::PATIENCE;
    loop {
        let processes = kit.leftovers().processes;
        if !processes.is_empty() && processes.iter().all(|pid| !without.contains(pid)) {
            return;
        }
        assert!(tokio::time::Instant::now() < deadline, "no VM waits\n{}", kit.log());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn kill_vms(kit: &Kit) {
    for vm in kit.leftovers().vm_cgroups {
        fs::write(format!("/sys/fs/cgroup/{}/{vm}/cgroup.kill", kit.vm_cgroup()), "1").unwrap();
    }
}
