//! `space project`

use space_api::{
    PageQuery,
    client::Client,
    projects::{CreateProject, Project},
};
use space_types::ProjectId;

use crate::{
    args::{GlobalArgs, ProjectCommand},
    error::CliError,
    output,
};

pub(super) async fn run(
    client: &Client,
    global: &GlobalArgs,
    command: &ProjectCommand,
) -> Result<u8, CliError> {
    let projects = match command {
        ProjectCommand::Create { name } => {
            let body = CreateProject { name: name.clone() };
            body.validate()?;
            vec![client.project_create(&body).await?]
        }
        ProjectCommand::Ls => list(client).await?,
        ProjectCommand::Rm { project } => {
            if let Some(id) = find(client, Some(project)).await? {
                client.project_delete(id).await?;
            }
            return Ok(0);
        }
    };
    if global.json {
        projects.iter().try_for_each(output::json)?;
    } else {
        let rows: Vec<_> = projects.iter().map(row).collect();
        output::line(&output::table(["ID", "NAME", "CREATED"], &rows));
    }
    Ok(0)
}

fn row(project: &Project) -> [String; 3] {
    [project.id.to_string(), output::plain(&project.name), project.created_at.to_string()]
}

/// A project by its id or name, if one is named.
pub(super) async fn find(client: &Client, text: Option<&str>) -> Result<Option<ProjectId>, CliError> {
    let Some(text) = text else { return Ok(None) };
    if let Ok(id) = text.parse() {
        return Ok(Some(id));
    }
    let found = list(client).await?.into_iter().find(|project| project.name == text);
    found.map(|project| Some(project.id)).ok_or_else(|| {
        CliError::hinted(anyhow::anyhow!("there is no project `{text}`"), "`space project ls` lists them")
    })
}

async fn list(client: &Client) -> Result<Vec<Project>, CliError> {
    let (mut query, mut projects) = (PageQuery::default(), Vec::new());
    loop {
        let page = client.project_list(&query).await?;
        projects.extend(page.items);
        query.cursor = page.next_cursor;
        if query.cursor.is_none() {
            return Ok(projects);
        }
    }
}
