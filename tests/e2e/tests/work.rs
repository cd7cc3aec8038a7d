//! Real work, as agents do it, inside a real microVM: by way of the Python client, and with nothing but the image.

use std::{env, process::Stdio};

use anyhow::Result;
use space_e2e::{Sandbox, Server};
use tokio::process::Command;

const PROGRAM: &str = include_str!("work.py");
const DONE: &str =
    "compile_and_run\nclone\nstandard_input\nfiles_both_ways\nterminal\nport\ncpythons_own_tests\n";

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_in_python_gets_its_work_done() -> Result<()> {
    let server = Server::get()?;
    let client = env::var("SPACE_PYTHON").unwrap_or_else(|_| "/opt/space/python".to_owned());
    let output = Command::new("python3")
        .args(["-W", "error", "-c", PROGRAM])
        .env("PYTHONPATH", client)
        .env("SPACE_URL", &server.url)
        .env("SPACE_API_KEY", &server.key)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await?;
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), DONE, "{errors}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_usual_tools_are_there() -> Result<()> {
    let sandbox = Sandbox::create().await?;
    let outcome = sandbox
        .sh("set -e; python3 -m pip --version; git --version; curl --version; node --version; make --version; \
             sudo -n true; whoami")
        .await?;
    assert_eq!(outcome.exit.code, Some(0), "{outcome}");
    assert!(outcome.stdout().ends_with("user\n"), "{outcome}");
    Ok(())
}
