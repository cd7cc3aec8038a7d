//! `space ls`

use space_api::{
    client::Client,
    sandboxes::{ListSandboxes, Sandbox},
};

use crate::{
    args::{GlobalArgs, ListArgs},
    error::CliError,
    output,
};

pub(super) async fn run(client: &Client, global: &GlobalArgs, args: ListArgs) -> Result<u8, CliError> {
    let project_id = super::project::find(client, args.project.project.as_deref()).await?;
    let mut query =
        ListSandboxes { limit: Some(200), label: args.label, state: args.state, project_id, cursor: None };
    let mut sandboxes = Vec::new();
    loop {
        let page = client.sandbox_list(&query).await?;
        sandboxes.extend(page.items);
        query.cursor = page.next_cursor;
        if query.cursor.is_none() {
            break;
        }
    }
    if global.json {
        output::json(&sandboxes)?;
    } else if args.quiet {
        for sandbox in &sandboxes {
            output::line(&sandbox.id.to_string());
        }
    } else {
        output::line(&render(&sandboxes));
    }
    Ok(0)
}

fn render(sandboxes: &[Sandbox]) -> String {
    let rows: Vec<_> = sandboxes.iter().map(row).collect();
    output::table(["ID", "STATE", "TEMPLATE", "SIZE", "CREATED", "LABELS"], &rows)
}

fn row(sandbox: &Sandbox) -> [String; 6] {
    let labels =
        sandbox.labels.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",");
    [
        sandbox.id.to_string(),
        super::get::state(sandbox),
        super::get::template(sandbox),
        format!("{}×{} MiB", sandbox.vcpus, sandbox.memory_mib),
        sandbox.created_at.to_string(),
        output::plain(&labels),
    ]
}
