//! `space port`

mod forward;

use space_api::{
    PageQuery,
    client::Client,
    ports::{CreatePortToken, Port, PortToken, PortVisibility, SetPort},
};
use space_types::SandboxId;

use crate::{
    args::{AccessArgs, GlobalArgs, PortArgs, PortCommand},
    error::CliError,
    output,
};

pub(super) async fn run(client: &Client, global: &GlobalArgs, command: &PortCommand) -> Result<u8, CliError> {
    match command {
        PortCommand::Forward(args) => return forward::run(client, global, args).await,
        PortCommand::Ls(args) => list(client, global, args.sandbox).await?,
        PortCommand::Url(args) => url(client, global, args).await?,
        PortCommand::Token(args) => token(client, global, args).await?,
        PortCommand::Public(args) => set(client, global, args, PortVisibility::Public).await?,
        PortCommand::Private(args) => set(client, global, args, PortVisibility::Private).await?,
        PortCommand::Revoke(args) => client.port_tokens_revoke(args.sandbox, args.port).await?,
    }
    Ok(0)
}

async fn list(client: &Client, global: &GlobalArgs, sandbox: SandboxId) -> Result<(), CliError> {
    let (mut query, mut ports) = (PageQuery::default(), Vec::new());
    loop {
        let page = client.port_list(sandbox, &query).await?;
        ports.extend(page.items);
        query.cursor = page.next_cursor;
        if query.cursor.is_none() {
            break;
        }
    }
    if global.json {
        return Ok(output::json(&ports)?);
    }
    let rows: Vec<_> = ports.iter().map(row).collect();
    output::line(&output::table(["PORT", "VISIBILITY", "URL"], &rows));
    Ok(())
}

fn row(port: &Port) -> [String; 3] {
    [port.port.to_string(), port.visibility.code().to_owned(), output::plain(&port.url)]
}

async fn set(
    client: &Client,
    global: &GlobalArgs,
    args: &PortArgs,
    visibility: PortVisibility,
) -> Result<(), CliError> {
    let port = client.port_set(args.sandbox, args.port, &SetPort { visibility }).await?;
    if global.json {
        output::json(&port)?;
    } else {
        output::line(&output::plain(&port.url));
    }
    Ok(())
}

/// With `--json` what the API has: the port if it is public, else the token made for it.
async fn url(client: &Client, global: &GlobalArgs, args: &AccessArgs) -> Result<(), CliError> {
    let port = client.port_get(args.at.sandbox, args.at.port).await?;
    match port.visibility {
        PortVisibility::Public if global.json => output::json(&port)?,
        PortVisibility::Public => output::line(&output::plain(&port.url)),
        PortVisibility::Private => {
            let made = make(client, args).await?;
            show(global, &made, made.link.as_deref(), "link")?;
        }
    }
    Ok(())
}

async fn token(client: &Client, global: &GlobalArgs, args: &AccessArgs) -> Result<(), CliError> {
    let made = make(client, args).await?;
    show(global, &made, made.token.as_deref(), "token")
}

async fn make(client: &Client, args: &AccessArgs) -> Result<PortToken, CliError> {
    let body = CreatePortToken { valid_seconds: args.valid };
    body.validate()?;
    Ok(client.port_token_create(args.at.sandbox, args.at.port, &body).await?)
}

/// The secret alone on standard output.
fn show(global: &GlobalArgs, made: &PortToken, secret: Option<&str>, what: &str) -> Result<(), CliError> {
    if global.json {
        output::json(made)?;
    } else if let Some(secret) = secret {
        eprintln!("space: whoever has this {what} reaches the port, until {}", made.expires_at);
        output::line(&output::plain(secret));
    }
    Ok(())
}
