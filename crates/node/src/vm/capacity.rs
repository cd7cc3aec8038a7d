//! How much memory the node has promised to whom.

use std::{
    collections::HashMap,
    fs,
    sync::{Mutex, MutexGuard, PoisonError},
};

use space_types::{ByteSize, SandboxId};

use crate::config::CapacityConfig;

/// What the node offers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Offer {
    pub(crate) vcpus: u32,
    pub(crate) memory: ByteSize,
}

const OVERCOMMIT: u32 = 4;

impl Offer {
    /// As configured, else from what the machine has.
    pub(crate) fn detect(config: &CapacityConfig) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let detected = u32::try_from(processors).unwrap_or(1) * OVERCOMMIT;
        let memory = match config.memory_mib {
            0 => offered_memory(&fs::read_to_string("/proc/meminfo").unwrap_or_default()),
            mib => ByteSize::mib(mib),
        };
        Self { vcpus: if config.vcpus == 0 { detected } else { config.vcpus }, memory }
    }
}

/// All but an eighth and half a gibibyte of `MemTotal`, which is in KiB.
fn offered_memory(meminfo: &str) -> ByteSize {
    let total = meminfo.lines().find_map(|line| {
        line.strip_prefix("MemTotal:")?.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
    });
    let mib = total.unwrap_or(0) / 1024;
    ByteSize::mib((mib - mib / 8).saturating_sub(512))
}

/// Who holds how much.
#[derive(Debug)]
pub(crate) struct Ledger {
    offer: Offer,
    held: Mutex<HashMap<SandboxId, ByteSize>>,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{asked} of memory asked for, {free} free")]
pub(crate) struct NoMemory {
    asked: ByteSize,
    free: ByteSize,
}

impl Ledger {
    pub(crate) fn new(offer: Offer) -> Self {
        Self { offer, held: Mutex::default() }
    }

    pub(crate) fn offer(&self) -> Offer {
        self.offer
    }

    /// Reserves memory for a sandbox; again for the same one: replaces its reservation.
    pub(crate) fn reserve(&self, sandbox: SandboxId, memory: ByteSize) -> Result<(), NoMemory> {
        let mut held = self.lock();
        let others: u64 =
            held.iter().filter(|(id, _)| **id != sandbox).map(|(_, size)| size.as_bytes()).sum();
        let free = ByteSize::bytes(self.offer.memory.as_bytes().saturating_sub(others));
        if memory > free {
            return Err(NoMemory { asked: memory, free });
        }
        held.insert(sandbox, memory);
        Ok(())
    }

    /// For one that runs already, whether or not it fits.
    pub(crate) fn adopt(&self, sandbox: SandboxId, memory: ByteSize) {
        self.lock().insert(sandbox, memory);
    }

    /// Idempotent.
    pub(crate) fn release(&self, sandbox: SandboxId) {
        self.lock().remove(&sandbox);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SandboxId, ByteSize>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ledger(mib: u64) -> Ledger {
        Ledger::new(Offer { vcpus: 1, memory: ByteSize::mib(mib) })
    }

    #[test]
    fn memory_is_given_once_and_comes_back() {
        let (ledger, first, second) = (ledger(100), SandboxId::new(), SandboxId::new());
        ledger.reserve(first, ByteSize::mib(60)).unwrap();
        ledger.reserve(first, ByteSize::mib(60)).unwrap();
        ledger.reserve(second, ByteSize::mib(60)).unwrap_err();
        ledger.release(first);
        ledger.reserve(second, ByteSize::mib(60)).unwrap();
    }

    #[test]
    fn the_offer_leaves_the_machine_some_memory() {
        assert_eq!(offered_memory("MemTotal: 8388608 kB\n"), ByteSize::mib(8192 - 1024 - 512));
        assert_eq!(offered_memory(""), ByteSize::default());
    }

    proptest! {
        #[test]
        fn never_more_is_promised_than_offered(sizes in proptest::collection::vec(1_u64..50, 0..20)) {
            let ledger = ledger(100);
            let granted: u64 = sizes
                .iter()
                .filter(|size| ledger.reserve(SandboxId::new(), ByteSize::mib(**size)).is_ok())
                .sum();
            prop_assert!(granted <= 100);
        }
    }
}
