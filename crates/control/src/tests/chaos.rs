//! Random scripts on a node that is hard to reach, forgets and lies: whatever happens on the way, in the end everybody
//! agrees.
//!
//! A failure prints its seed; `SPACE_SEED` runs that one alone.

use std::{collections::BTreeSet, time::Duration};

use serde_json::{Value, json};
use space_testkit::sim::SimNode;
use tokio::time::Instant;

use super::kit::{PATIENCE, World};

/// What users and the machine do, one after the other.
const STEPS: usize = 40;
const SEEDS: std::ops::Range<u64> = 1..5;

#[tokio::test]
async fn after_any_script_node_and_control_agree() {
    let only = std::env::var("SPACE_SEED").ok().map(|seed| seed.parse::<u64>().unwrap());
    for seed in only.map_or(SEEDS, |seed| seed..seed + 1) {
        eprintln!("to see this again: SPACE_SEED={seed}");
        let world = World::start().await;
        let node = world.node().await;
        let known = play(&world, &node, seed).await;
        node.disturb(None);
        agree(&world, &node, &known).await;
    }
}

/// The ids of all sandboxes that were made.
async fn play(world: &World, node: &SimNode, seed: u64) -> BTreeSet<String> {
    let mut random = fastrand::Rng::with_seed(seed);
    node.disturb(Some(seed));
    let mut known: Vec<String> = Vec::new();
    for _ in 0..STEPS {
        match random.u8(0..10) {
            0..4 => {
                let made = world.admin.post("/v1/sandboxes", &json!({"memory_mib": 256})).await;
                if made.status == 202 || made.status == 201 {
                    known.push(made.body["sandbox"]["id"].as_str().unwrap().to_owned());
                }
            }
            4..6 if !known.is_empty() => {
                let id = &known[random.usize(0..known.len())];
                let answer = world.admin.delete(&format!("/v1/sandboxes/{id}")).await;
                assert!(answer.status < 500, "{answer:?}");
            }
            6 => node.gossip(&mut random).await.unwrap(),
            7 => {
                node.heartbeat().await.unwrap();
            }
            8 => {
                world.app().store.trigger_all_due().await.unwrap();
            }
            _ if random.u8(0..4) == 0 => node.crash(),
            _ => {}
        }
    }
    known.into_iter().collect()
}

/// Waits until every sandbox is settled, on both sides in the same way.
async fn agree(world: &World, node: &SimNode, known: &BTreeSet<String>) {
    let end = Instant::now() + PATIENCE;
    loop {
        node.heartbeat().await.unwrap();
        world.app().store.trigger_all_due().await.unwrap();
        let differs = difference(world, node, known).await;
        let Some(difference) = differs else { break };
        assert!(Instant::now() < end, "{difference}");
        // Nobody tells of the moment when all of them have settled.
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    world.assert_reservations_add_up().await;
}

async fn difference(world: &World, node: &SimNode, known: &BTreeSet<String>) -> Option<String> {
    let here: BTreeSet<String> = node.reports().into_iter().map(|report| report.sandbox_id).collect();
    for id in known {
        let sandbox: Value = world.admin.get(&format!("/v1/sandboxes/{id}")).await.body;
        let state = sandbox["state"].as_str().unwrap_or_default();
        let fits = match state {
            "running" => here.contains(id),
            "deleted" => !here.contains(id),
            // What the node lost has failed, here and there.
            "failed" => true,
            _ => false,
        };
        if !fits {
            return Some(format!("{id} is {sandbox}, and on the node: {}", here.contains(id)));
        }
    }
    let stray = here.iter().find(|id| !known.contains(*id));
    stray.map(|id| format!("{id} is on the node, and nobody made it"))
}
