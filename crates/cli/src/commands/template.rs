//! `space template`

use std::os::unix::fs::PermissionsExt;

use anyhow::Context;
use camino::{Utf8Path, Utf8PathBuf};
use space_api::{
    PageQuery,
    client::Client,
    templates::{PublishRelease, Template},
};
use space_types::{ByteSize, Digest, TemplateRef};

use crate::{
    args::{GlobalArgs, ImportArgs, TemplateCommand},
    error::CliError,
    image, output, progress,
};

pub(super) async fn run(
    client: &Client,
    global: &GlobalArgs,
    command: &TemplateCommand,
) -> Result<u8, CliError> {
    match command {
        TemplateCommand::Ls => list(client, global).await?,
        TemplateCommand::Import(args) => import(client, global, args).await?,
    }
    Ok(0)
}

async fn list(client: &Client, global: &GlobalArgs) -> Result<(), CliError> {
    let (mut query, mut templates) = (PageQuery::default(), Vec::new());
    loop {
        let page = client.template_list(&query).await?;
        templates.extend(page.items);
        query.cursor = page.next_cursor;
        if query.cursor.is_none() {
            break;
        }
    }
    if global.json {
        return Ok(output::json(&templates)?);
    }
    let rows: Vec<_> = templates.iter().flat_map(rows).collect();
    output::line(&output::table(["TEMPLATE", "TAGS", "SIZE", "PUBLISHED", "DIGEST"], &rows));
    Ok(())
}

/// One for each release.
fn rows(template: &Template) -> Vec<[String; 5]> {
    let tags = |digest: &Digest| {
        let tags = template.tags.iter().filter(|(_, tagged)| *tagged == digest).map(|(tag, _)| tag.as_str());
        tags.collect::<Vec<_>>().join(",")
    };
    let row = |release: &space_api::templates::Release| {
        [
            output::plain(&template.name),
            output::plain(&tags(&release.digest)),
            ByteSize::bytes(release.size_bytes).to_string(),
            release.created_at.to_string(),
            release.digest.to_string(),
        ]
    };
    template.releases.iter().map(row).collect()
}

async fn import(client: &Client, global: &GlobalArgs, args: &ImportArgs) -> Result<(), CliError> {
    let (name, tag) = parse_name(&args.name)?;
    let store = camino::absolute_utf8(&args.store).map_err(anyhow::Error::from)?;
    let (image, digest) = progress::during("making the image", keep(args, &store)).await?;
    let release = PublishRelease {
        name,
        tag,
        digest,
        location: format!("file://{image}"),
        size_bytes: image.metadata().map_err(anyhow::Error::from)?.len(),
    };
    release.validate()?;
    let published = client.release_publish(&release).await?;
    if global.json {
        output::json(&published)?;
    } else {
        output::line(&format!("{}:{} is now {}", published.name, release.tag, published.digest));
    }
    Ok(())
}

fn parse_name(text: &str) -> Result<(String, String), CliError> {
    match text.parse::<TemplateRef>().map_err(anyhow::Error::from)? {
        TemplateRef::Tag { name, tag } => Ok((name, tag)),
        TemplateRef::Exact { .. } => Err(anyhow::anyhow!("a release is published under NAME:TAG").into()),
    }
}

/// The image under its digest's name, read-only, so that a release's content never changes.
async fn keep(args: &ImportArgs, store: &Utf8Path) -> anyhow::Result<(Utf8PathBuf, Digest)> {
    std::fs::create_dir_all(store).with_context(|| format!("cannot make {store}"))?;
    let new = tempfile::Builder::new().prefix("import-").tempfile_in(store)?.into_temp_path();
    let path = Utf8Path::from_path(&new).context("the store's path is not UTF-8")?;
    image::make(&args.source, path, args.size.map(ByteSize::mib)).await?;
    let digest = image::digest(path).await?;
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o444))?;
    let kept = store.join(format!("{}.img", digest.hex()));
    new.persist(&kept).with_context(|| format!("cannot keep {kept}"))?;
    Ok((kept, digest))
}
