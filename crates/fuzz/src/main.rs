//! One target under libFuzzer; `SPACE_FUZZ_TARGET` says which. `cargo xtask fuzz` builds it with coverage and starts it.
//!
//! One program for all targets, because most of the time goes into linking one.

#![no_main]

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use space_fuzz::{TARGET_VARIABLE, Target};

static TARGET: OnceLock<Target> = OnceLock::new();

fn chosen() -> Target {
    let name = std::env::var(TARGET_VARIABLE).unwrap_or_default();
    let found = space_fuzz::TARGETS.iter().find(|target| target.name == name);
    found.copied().unwrap_or_else(|| panic!("{TARGET_VARIABLE} names no target: {name:?}"))
}

fuzz_target!(|bytes: &[u8]| TARGET.get_or_init(chosen).run(bytes));
