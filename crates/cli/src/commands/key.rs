//! `space key`

use space_api::{
    PageQuery, Timestamp,
    client::Client,
    keys::{CreateKey, Key, KeyCreated, Role, RotateKey},
    scopes::Scope,
};

use super::{project, tenant};
use crate::{
    args::{CreateKeyArgs, GlobalArgs, KeyCommand},
    error::CliError,
    output,
};

pub(super) async fn run(client: &Client, global: &GlobalArgs, command: &KeyCommand) -> Result<u8, CliError> {
    match command {
        KeyCommand::Create(args) => {
            let body = request(client, args).await?;
            body.validate()?;
            show(global, &client.key_create(&body).await?, "made")?;
        }
        KeyCommand::Ls => list(client, global).await?,
        KeyCommand::Rotate { id, overlap } => {
            let body = RotateKey { overlap_seconds: *overlap };
            body.validate()?;
            show(global, &client.key_rotate(*id, &body).await?, "rotated")?;
        }
        KeyCommand::Revoke { id } => client.key_revoke(*id).await?,
    }
    Ok(0)
}

async fn request(client: &Client, args: &CreateKeyArgs) -> Result<CreateKey, CliError> {
    let tenant_id = match &args.tenant {
        Some(tenant) => Some(tenant::find(client, tenant).await?),
        None => None,
    };
    let project_id = project::find(client, args.project.as_deref()).await?;
    Ok(CreateKey { tenant_id, project_id, ..args.body() })
}

/// The secret alone on standard output.
fn show(global: &GlobalArgs, created: &KeyCreated, done: &str) -> Result<(), CliError> {
    if global.json {
        output::json(created)?;
    } else if let Some(secret) = &created.secret {
        eprintln!("space: {done} {}; its secret is shown only now", created.key.id);
        output::line(secret);
    }
    Ok(())
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
    let head = ["ID", "TENANT", "PROJECT", "NAME", "MAY", "CREATED", "LAST USED", "EXPIRES", "REVOKED"];
    output::line(&output::table(head, &rows));
    Ok(())
}

fn row(key: &Key) -> [String; 9] {
    let time = |time: Option<Timestamp>| time.map_or(String::new(), |time| time.to_string());
    [
        key.id.to_string(),
        key.tenant_id.to_string(),
        key.project_id.map_or(String::new(), |id| id.to_string()),
        output::plain(&key.name),
        may(key),
        key.created_at.to_string(),
        time(key.last_used_at),
        time(key.expires_at),
        time(key.revoked_at),
    ]
}

/// `admin`, `all`, or the scopes.
fn may(key: &Key) -> String {
    match key.role {
        Role::Admin => key.role.code().to_owned(),
        Role::Member if key.scopes.len() == Scope::ALL.len() => "all".to_owned(),
        Role::Member => key.scopes.iter().map(|scope| scope.code()).collect::<Vec<_>>().join(","),
    }
}
