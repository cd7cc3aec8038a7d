//! The daemon dies while it joins, and while it takes note of a VM's own end; after the next start nothing is lost
//! and nothing leaks. All its other fail points lie on the way of a sandbox that is made and removed: the end-to-end suite `deaths`
//! dies at each of those, and fails when a list of what it doesn't meet is not this one.

use std::time::Duration;

use space_fail_point::FailPoint;
use space_node::fail_point;
use space_node_proto::common::Phase;
use space_types::SandboxId;

use crate::kit::{Kit, PATIENCE};

#[tokio::test(flavor = "multi_thread")]
async fn dying_while_a_vm_ends_loses_and_leaks_nothing() {
    let mut kit = Kit::new().await;
    let points: Vec<_> = fail_point::ALL.iter().filter(|point| point.name().starts_with("end.")).collect();
    assert_eq!(points.iter().map(|point| point.name()).collect::<Vec<_>>(), ["end.seen", "end.recorded"]);
    for point in points {
        die_at(&mut kit, *point).await;
    }
}

/// Control has the node and the token is used up; the node knows nothing of it.
#[tokio::test(flavor = "multi_thread")]
async fn dying_with_the_answer_to_a_join_in_hand_costs_nothing() {
    let mut kit = Kit::new().await;
    kit.settings.fail_point = Some(fail_point::ENROL_ANSWERED);
    kit.start();
    assert!(kit.dies(PATIENCE).await, "it never joined");
    kit.settings.fail_point = None;
    kit.restart().await;
    assert_eq!(kit.registry.enrolments(), 2);
    let sandbox = SandboxId::new();
    assert_eq!(kit.ensure(sandbox).await.unwrap().phase(), Phase::Running);
    kit.remove(sandbox, 1).await.unwrap();
    kit.stop();
    kit.restart().await;
    assert_eq!(kit.registry.enrolments(), 2, "an identity is kept");
    kit.stop();
    kit.nothing_is_left();
}

async fn die_at(kit: &mut Kit, point: FailPoint) {
    let sandbox = SandboxId::new();
    kit.settings.fail_point = Some(point);
    kit.start();
    kit.ready_or_dead().await;
    kit.ensure(sandbox).await.unwrap_or_else(|error| panic!("{}: {error}", point.name()));
    for vm in kit.leftovers().vm_cgroups {
        let kill = format!("/sys/fs/cgroup/{}/{vm}/cgroup.kill", kit.vm_cgroup());
        std::fs::write(kill, "1").unwrap();
    }
    assert!(kit.dies(Duration::from_secs(20)).await, "never came past {}", point.name());
    kit.settings.fail_point = None;
    kit.restart().await;
    kit.until(sandbox, |seen| seen.phase() == Phase::Failed).await;
    kit.remove(sandbox, 2).await.unwrap_or_else(|error| panic!("{}: {error}", point.name()));
    kit.stop();
    kit.nothing_is_left();
}
