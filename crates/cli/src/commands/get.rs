//! `space get`

use space_api::{Timestamp, client::Client, sandboxes::Sandbox};

use crate::{
    args::{GlobalArgs, SandboxArgs},
    error::CliError,
    output,
};

pub(super) async fn run(client: &Client, global: &GlobalArgs, args: &SandboxArgs) -> Result<u8, CliError> {
    let sandbox = client.sandbox_get(args.sandbox).await?;
    if global.json {
        output::json(&sandbox)?;
    } else {
        output::line(&render(&sandbox));
    }
    Ok(0)
}

/// `stopped (guest_shutdown)`, or the state alone.
pub(super) fn state(sandbox: &Sandbox) -> String {
    sandbox.reason.map_or_else(|| sandbox.state.to_string(), |reason| format!("{} ({reason})", sandbox.state))
}

pub(super) fn template(sandbox: &Sandbox) -> String {
    let template = &sandbox.template;
    let short = &template.digest.hex()[..12];
    output::plain(&match &template.tag {
        Some(tag) => format!("{}:{tag}", template.name),
        None => format!("{}@sha256:{short}…", template.name),
    })
}

fn render(sandbox: &Sandbox) -> String {
    let labels =
        sandbox.labels.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ");
    let time = |time: Option<Timestamp>| time.map(|time| time.to_string());
    let rows: [(&str, Option<String>); 14] = [
        ("id", Some(sandbox.id.to_string())),
        ("project", Some(sandbox.project_id.to_string())),
        ("state", Some(state(sandbox))),
        ("operation", sandbox.operation.map(|id| id.to_string())),
        ("template", Some(template(sandbox))),
        ("digest", Some(sandbox.template.digest.to_string())),
        (
            "size",
            Some(format!(
                "{} vCPU, {} MiB memory, {} MiB disk",
                sandbox.vcpus, sandbox.memory_mib, sandbox.disk_mib
            )),
        ),
        ("env", Some(sandbox.env_names.join(" ")).filter(|names| !names.is_empty())),
        ("labels", Some(labels).filter(|labels| !labels.is_empty())),
        ("node", sandbox.node_id.map(|id| id.to_string())),
        ("agent", sandbox.agent_version.clone()),
        ("created", time(Some(sandbox.created_at))),
        ("started", time(sandbox.started_at)),
        ("ended", time(sandbox.ended_at)),
    ];
    let lines =
        rows.into_iter().filter_map(|(name, value)| Some(format!("{name:<10} {}", output::plain(&value?))));
    lines.collect::<Vec<_>>().join("\n")
}
