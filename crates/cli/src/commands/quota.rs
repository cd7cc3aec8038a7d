//! `space quota`

use space_api::{
    client::Client,
    quotas::{QuotaOwner, QuotaReport, Resource},
};

use super::project;
use crate::{
    args::{GlobalArgs, ProjectArgs},
    error::CliError,
    output,
};

pub(super) async fn run(client: &Client, global: &GlobalArgs, args: &ProjectArgs) -> Result<u8, CliError> {
    let project = project::find(client, args.project.as_deref()).await?;
    let quotas = client.quota_get(project).await?;
    if global.json {
        output::json(&quotas)?;
        return Ok(0);
    }
    let both = [(QuotaOwner::Tenant, quotas.tenant), (QuotaOwner::Project, quotas.project)];
    let rows: Vec<_> =
        both.into_iter().filter_map(|(of, report)| Some(rows(of, &report?))).flatten().collect();
    output::line(&output::table(["OF", "RESOURCE", "USED", "LIMIT"], &rows));
    Ok(0)
}

fn rows(of: QuotaOwner, report: &QuotaReport) -> [[String; 4]; 4] {
    Resource::ALL.map(|resource| {
        let quota = report.get(resource);
        let limit = quota.limit.map_or_else(|| "none".to_owned(), |limit| limit.to_string());
        [of.to_string(), resource.to_string(), quota.used.to_string(), limit]
    })
}
