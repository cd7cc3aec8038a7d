//! The corpus, through every target. What a fuzzer has found once is found for good.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    collections::BTreeSet,
    fs,
    panic::catch_unwind,
    path::{Path, PathBuf},
};

use space_fuzz::TARGETS;

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus")
}

/// Each in its own order of names, so that a failure is the same on every machine.
fn seeds(target: &str) -> Vec<PathBuf> {
    let mut seeds: Vec<PathBuf> =
        fs::read_dir(corpus().join(target)).unwrap().map(|entry| entry.unwrap().path()).collect();
    seeds.sort();
    seeds
}

#[test]
fn every_seed_keeps_the_properties_of_every_target() {
    let mut broken = Vec::new();
    for home in TARGETS {
        for seed in seeds(home.name) {
            let bytes = fs::read(&seed).unwrap();
            // Another target's input is as hostile as any.
            for target in TARGETS {
                if catch_unwind(|| target.run(&bytes)).is_err() {
                    broken.push(format!("{} with {}", target.name, seed.display()));
                }
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn every_target_has_seeds_and_every_seed_a_target() {
    let directories: BTreeSet<String> = fs::read_dir(corpus())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let names: BTreeSet<String> = TARGETS.iter().map(|target| target.name.to_owned()).collect();
    assert_eq!(directories, names);
    for target in TARGETS {
        let seeds = seeds(target.name);
        assert!(seeds.len() >= 3, "{}: {} seeds", target.name, seeds.len());
        for seed in seeds {
            let bytes = usize::try_from(fs::metadata(&seed).unwrap().len()).unwrap();
            assert!(bytes <= target.input_bytes, "{}: longer than what is tried", seed.display());
        }
    }
}
