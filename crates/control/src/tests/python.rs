//! The Python client's own tests, against this control plane and a simulated node.

use std::{path::Path, process::Stdio};

use tokio::process::Command;

use super::kit::{PATIENCE, World};

/// `python3 -m unittest` on one directory of them. A socket that is left open fails them, like any other warning.
async fn passes(suite: &str, settings: &[(&str, &str)]) {
    // Asked for when the test runs: checkouts may share what was compiled.
    let here = std::env::var("CARGO_MANIFEST_DIR").unwrap();
    let mut python = Command::new("python3");
    python
        .args(["-B", "-W", "error", "-m", "unittest", "discover", "-t", ".", "-s", suite])
        .current_dir(Path::new(&here).join("../../clients/python"))
        .env_remove("SPACE_PROJECT")
        .envs(settings.iter().copied())
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let ran = tokio::time::timeout(2 * PATIENCE, python.output()).await;
    let ran = ran.expect("python3 to end in time").expect("python3 to be installed");
    let (text, count) = (String::from_utf8_lossy(&ran.stderr), "\nRan 0 tests");
    assert!(ran.status.success() && text.contains("\nRan ") && !text.contains(count), "{text}");
}

#[tokio::test]
async fn the_python_client_keeps_its_promises_on_broken_connections() {
    passes("tests/unit", &[]).await;
}

#[tokio::test]
async fn the_python_client_and_this_server_understand_each_other() {
    let world = World::start().await;
    let _node = world.node().await;
    passes("tests/live", &[("SPACE_URL", &world.admin.base), ("SPACE_API_KEY", &world.admin.key)]).await;
}
