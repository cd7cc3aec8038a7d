//! The sizes a sandbox comes in. Fixed, because a base snapshot exists per size and the device set and memory
//! of a snapshot can't change.

use serde::{Deserialize, Serialize};

use crate::ByteSize;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineClass {
    pub vcpus: u8,
    pub memory: ByteSize,
}

const fn class(vcpus: u8, mib: u64) -> MachineClass {
    MachineClass { vcpus, memory: ByteSize::mib(mib) }
}

/// All of them, smallest first.
pub const MACHINE_CLASSES: [MachineClass; 10] = [
    class(1, 128),
    class(1, 256),
    class(1, 512),
    class(1, 1024),
    class(2, 512),
    class(2, 1024),
    class(2, 2048),
    class(4, 2048),
    class(4, 4096),
    class(8, 8192),
];

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no class with {vcpus} vCPU and {memory}; there are: {}", list())]
pub struct MachineClassError {
    pub vcpus: u32,
    pub memory: ByteSize,
}

impl MachineClass {
    pub const DEFAULT: Self = class(1, 512);

    pub fn find(vcpus: u32, memory: ByteSize) -> Result<Self, MachineClassError> {
        MACHINE_CLASSES
            .into_iter()
            .find(|class| u32::from(class.vcpus) == vcpus && class.memory == memory)
            .ok_or(MachineClassError { vcpus, memory })
    }
}

fn list() -> String {
    MACHINE_CLASSES.map(|class| format!("{}×{}", class.vcpus, class.memory)).join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_a_class() {
        assert!(MACHINE_CLASSES.contains(&MachineClass::DEFAULT));
    }

    #[test]
    fn a_size_between_classes_is_refused_and_names_them() {
        let error = MachineClass::find(3, ByteSize::gib(1)).unwrap_err();
        assert!(error.to_string().contains("2×1 GiB"), "{error}");
    }
}
