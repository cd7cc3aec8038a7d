//! `space tenant`

use space_api::{
    PageQuery,
    client::Client,
    tenants::{CreateTenant, Tenant},
};
use space_types::TenantId;

use crate::{
    args::{GlobalArgs, TenantCommand},
    error::CliError,
    output,
};

pub(super) async fn run(
    client: &Client,
    global: &GlobalArgs,
    command: &TenantCommand,
) -> Result<u8, CliError> {
    let tenants = match command {
        TenantCommand::Create { name } => {
            let body = CreateTenant { name: name.clone() };
            body.validate()?;
            vec![client.tenant_create(&body).await?]
        }
        TenantCommand::Ls => list(client).await?,
    };
    if global.json {
        tenants.iter().try_for_each(output::json)?;
    } else {
        let rows: Vec<_> = tenants
            .iter()
            .map(|t| [t.id.to_string(), output::plain(&t.name), t.created_at.to_string()])
            .collect();
        output::line(&output::table(["ID", "NAME", "CREATED"], &rows));
    }
    Ok(0)
}

/// A tenant by its id or name.
pub(super) async fn find(client: &Client, text: &str) -> Result<TenantId, CliError> {
    if let Ok(id) = text.parse() {
        return Ok(id);
    }
    let tenants = list(client).await?;
    let found = tenants.into_iter().find(|tenant| tenant.name == text).map(|tenant| tenant.id);
    found.ok_or_else(|| {
        CliError::hinted(anyhow::anyhow!("there is no tenant `{text}`"), "`space tenant ls` lists them")
    })
}

async fn list(client: &Client) -> Result<Vec<Tenant>, CliError> {
    let (mut query, mut tenants) = (PageQuery::default(), Vec::new());
    loop {
        let page = client.tenant_list(&query).await?;
        tenants.extend(page.items);
        query.cursor = page.next_cursor;
        if query.cursor.is_none() {
            return Ok(tenants);
        }
    }
}
