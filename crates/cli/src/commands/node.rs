//! `space node`

use space_api::{
    PageQuery,
    client::Client,
    nodes::{CreateJoinToken, Node, NodeState},
};

use crate::{
    args::{GlobalArgs, NodeCommand},
    error::CliError,
    output,
};

pub(super) async fn run(client: &Client, global: &GlobalArgs, command: &NodeCommand) -> Result<u8, CliError> {
    match command {
        NodeCommand::Ls => list(client, global).await?,
        NodeCommand::JoinToken { valid } => {
            let body = CreateJoinToken { valid_seconds: *valid, ..CreateJoinToken::default() };
            body.validate()?;
            let token = client.join_token_create(&body).await?;
            if global.json {
                output::json(&token)?;
            } else if let Some(secret) = &token.token {
                eprintln!("space: good for one node, until {}", token.expires_at);
                output::line(secret);
            }
        }
    }
    Ok(0)
}

async fn list(client: &Client, global: &GlobalArgs) -> Result<(), CliError> {
    let (mut query, mut nodes) = (PageQuery::default(), Vec::new());
    loop {
        let page = client.node_list(&query).await?;
        nodes.extend(page.items);
        query.cursor = page.next_cursor;
        if query.cursor.is_none() {
            break;
        }
    }
    if global.json {
        return Ok(output::json(&nodes)?);
    }
    let rows: Vec<_> = nodes.iter().map(row).collect();
    output::line(&output::table(
        ["ID", "NAME", "STATE", "SANDBOXES", "VCPUS", "MEMORY MIB", "DISK FREE MIB"],
        &rows,
    ));
    Ok(())
}

fn row(node: &Node) -> [String; 7] {
    let state = match node.state {
        NodeState::Ready => "ready",
        NodeState::Lost => "lost",
    };
    [
        node.id.to_string(),
        output::plain(&node.name),
        state.to_owned(),
        node.sandboxes.to_string(),
        format!("{}/{}", node.used.vcpus, node.capacity.vcpus),
        format!("{}/{}", node.used.memory_mib, node.capacity.memory_mib),
        node.capacity.disk_mib.to_string(),
    ]
}
