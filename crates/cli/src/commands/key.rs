//! `space key`

use space_api::{
    PageQuery,
    client::Client,
    keys::{CreateKey, Key},
};

use super::tenant;
use crate::{
    args::{GlobalArgs, KeyCommand},
    error::CliError,
    output,
};

pub(super) async fn run(client: &Client, global: &GlobalArgs, command: &KeyCommand) -> Result<u8, CliError> {
    match command {
        KeyCommand::Create { name, tenant, role } => {
            let tenant_id = tenant::find(client, tenant).await?;
            let body = CreateKey { tenant_id, name: name.clone(), role: *role };
            body.validate()?;
            let created = client.key_create(&body).await?;
            if global.json {
                output::json(&created)?;
            } else if let Some(secret) = &created.secret {
                eprintln!("space: made {}; its secret is shown only now", created.key.id);
                output::line(secret);
            }
        }
        KeyCommand::Ls => list(client, global).await?,
        KeyCommand::Rm { id } => client.key_revoke(*id).await?,
    }
    Ok(0)
}

async fn list(client: &Client, global: &GlobalArgs) -> Result<(), CliError> {
    let (mut query, mut keys) = (PageQuery::default(), Vec::new());
    loop {
        let page = client.key_list(&query).await?;
        keys.extend(page.items);
        query.cursor = page.next_cursor;
        if query.cursor.is_none() {
            break;
        }
    }
    if global.json {
        return Ok(output::json(&keys)?);
    }
    let rows: Vec<_> = keys.iter().map(row).collect();
    output::line(&output::table(["ID", "TENANT", "NAME", "ROLE", "CREATED", "REVOKED"], &rows));
    Ok(())
}

fn row(key: &Key) -> [String; 6] {
    [
        key.id.to_string(),
        key.tenant_id.to_string(),
        output::plain(&key.name),
        key.role.code().to_owned(),
        key.created_at.to_string(),
        key.revoked_at.map_or(String::new(), |time| time.to_string()),
    ]
}
