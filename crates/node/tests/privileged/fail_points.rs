//! The daemon dies at each named instant; after the next start nothing is lost and nothing leaks.

use std::time::Duration;

use space_fail_point::FailPoint;
use space_node::fail_point;
use space_node_proto::common::Phase;
use space_types::SandboxId;

use crate::kit::Kit;

#[tokio::test(flavor = "multi_thread")]
async fn dying_at_any_fail_point_loses_and_leaks_nothing() {
    let mut kit = Kit::new().await;
    let mut died_at = Vec::new();
    for point in fail_point::ALL {
        eprintln!("fail point {}", point.name());
        if die_at(&mut kit, *point).await {
            died_at.push(point.name());
        }
    }
    let missed: Vec<_> =
        fail_point::ALL.iter().map(|p| p.name()).filter(|name| !died_at.contains(name)).collect();
    eprintln!("{} fail points, died at {}", fail_point::ALL.len(), died_at.len());
    assert!(missed.is_empty(), "never came past {missed:?}");
}

/// Whether the daemon died there.
async fn die_at(kit: &mut Kit, point: FailPoint) -> bool {
    let sandbox = SandboxId::new();
    kit.settings.fail_point = Some(point);
    kit.start();
    let died = drive(kit, sandbox, point).await;
    if !died {
        kit.stop();
    }
    kit.settings.fail_point = None;
    kit.restart().await;
    if point.name().starts_with("end.") {
        kit.until(sandbox, |seen| seen.phase() == Phase::Failed).await;
    } else if !point.name().starts_with("remove.") {
        // Acknowledged or not, asking again brings it up.
        let seen = kit.ensure(sandbox).await.unwrap_or_else(|error| panic!("{}: {error}", point.name()));
        assert_eq!(seen.phase(), Phase::Running, "{}: {seen:?}", point.name());
    }
    kit.remove(sandbox, 2).await.unwrap_or_else(|error| panic!("{}: {error}", point.name()));
    kit.stop();
    kit.nothing_is_left();
    died
}

async fn drive(kit: &mut Kit, sandbox: SandboxId, point: FailPoint) -> bool {
    if point.name().starts_with("slot.") {
        return kit.dies(crate::kit::PATIENCE).await;
    }
    kit.ready_or_dead().await;
    // Both answers may be the daemon's death; what counts is what is there afterwards.
    let ensured = kit.ensure(sandbox).await;
    if ensured.is_ok() && point.name().starts_with("end.") {
        for vm in kit.leftovers().vm_cgroups {
            let kill = format!("/sys/fs/cgroup/{}/{vm}/cgroup.kill", kit.vm_cgroup());
            std::fs::write(kill, "1").unwrap();
        }
    } else if ensured.is_ok() {
        drop(kit.remove(sandbox, 1).await);
    }
    kit.dies(Duration::from_secs(20)).await
}
