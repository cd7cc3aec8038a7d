//! What a network and a machine do to calls, by a seed: the same seed, the same fates in the same order.
//!
//! Calls are late, and overtake each other by that; they are lost on the way there or on the way back; they arrive twice.
//! What a node says about its sandboxes is repeated, out of date, or of a generation that nobody asked for.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use space_node_proto::common::ObservedSandbox;
use tonic::Status;

/// The latest that a call is.
const LATENCY: std::ops::Range<u64> = 1..40;

/// What becomes of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Undisturbed,
    Late(Duration),
    /// It never arrives.
    RequestLost,
    /// It is carried out, and nobody hears of it.
    ReplyLost,
    Twice,
}

impl Fate {
    /// On the way to the node.
    pub(super) async fn arrive(self) -> Result<(), Status> {
        match self {
            Self::Undisturbed | Self::ReplyLost | Self::Twice => Ok(()),
            // The delay is what is played here; nothing waits for it to pass.
            Self::Late(delay) => {
                tokio::time::sleep(delay).await;
                Ok(())
            }
            Self::RequestLost => Err(Status::unavailable("lost on the way")),
        }
    }

    /// On the way back.
    pub(super) fn leave(self) -> Result<(), Status> {
        match self {
            Self::Undisturbed | Self::Late(_) | Self::RequestLost | Self::Twice => Ok(()),
            Self::ReplyLost => Err(Status::unavailable("lost on the way back")),
        }
    }
}

/// Nothing is disturbed without a seed.
#[derive(Default)]
pub(super) struct Chaos(Mutex<Option<fastrand::Rng>>);

impl Chaos {
    pub(super) fn seed(&self, seed: Option<u64>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = seed.map(fastrand::Rng::with_seed);
    }

    pub(super) fn fate(&self) -> Fate {
        let mut random = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(random) = random.as_mut() else { return Fate::Undisturbed };
        match random.u8(0..10) {
            0..3 => Fate::Late(Duration::from_millis(random.u64(LATENCY))),
            3 => Fate::RequestLost,
            4 | 5 => Fate::ReplyLost,
            6 => Fate::Twice,
            _ => Fate::Undisturbed,
        }
    }
}

/// The reports, and beside them what must not count: repetitions, older ones, and lies about the generation, in any order.
pub(super) fn gossip(reports: &[ObservedSandbox], random: &mut fastrand::Rng) -> Vec<ObservedSandbox> {
    let mut said = Vec::new();
    for report in reports {
        let lie = ObservedSandbox {
            generation: report.generation + random.u64(1..9),
            phase: space_node_proto::common::Phase::Failed.into(),
            reason: "node_error".to_owned(),
            ..report.clone()
        };
        let older = ObservedSandbox {
            sequence: 0,
            phase: space_node_proto::common::Phase::Booting.into(),
            ..report.clone()
        };
        said.extend([report.clone(), report.clone(), lie, older]);
    }
    random.shuffle(&mut said);
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_decides_every_fate_and_all_of_them_come() {
        let fates = |seed| -> Vec<Fate> {
            let chaos = Chaos::default();
            chaos.seed(Some(seed));
            (0..200).map(|_| chaos.fate()).collect()
        };
        assert_eq!(fates(7), fates(7));
        assert_ne!(fates(7), fates(8));
        for fate in [Fate::Undisturbed, Fate::RequestLost, Fate::ReplyLost, Fate::Twice] {
            assert!(fates(7).contains(&fate), "{fate:?}");
        }
        assert_eq!(Chaos::default().fate(), Fate::Undisturbed);
    }
}
