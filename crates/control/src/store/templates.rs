//! Templates: a name, its tags, and the releases behind them.

use std::collections::BTreeMap;

use space_api::{
    Timestamp,
    templates::{PublishRelease, Release, Template},
};
use space_types::{ReleaseId, TemplateRef};
use sqlx::PgConnection;
use uuid::Uuid;

use super::{
    Store, StoreError, coded,
    idempotency::{Claim, Claimed},
    signed, unsigned,
};

#[derive(sqlx::FromRow)]
struct ReleaseRow {
    id: Uuid,
    name: String,
    digest: String,
    size_bytes: i64,
    created_at: i64,
}

impl TryFrom<ReleaseRow> for Release {
    type Error = StoreError;

    fn try_from(row: ReleaseRow) -> Result<Self, StoreError> {
        Ok(Self {
            id: ReleaseId::from_uuid(row.id),
            name: row.name,
            digest: coded(row.digest.parse().ok(), "digest", &row.digest)?,
            size_bytes: unsigned(row.size_bytes),
            created_at: Timestamp::from_unix_milliseconds(row.created_at),
        })
    }
}

/// What a template reference meant at one moment.
#[derive(Debug, Clone)]
pub(crate) struct ResolvedRelease {
    pub(crate) id: ReleaseId,
    pub(crate) size_bytes: u64,
}

/// Inside the transaction that uses the release.
pub(super) async fn resolve(
    tx: &mut PgConnection,
    reference: &TemplateRef,
) -> Result<Option<ResolvedRelease>, StoreError> {
    let query = match reference {
        TemplateRef::Tag { name, tag } => sqlx::query_as(
            "select r.id, r.size_bytes from template_tags t join releases r on r.id = t.release_id \
             where t.name = $1 and t.tag = $2",
        )
        .bind(name)
        .bind(tag),
        TemplateRef::Exact { name, digest } => {
            sqlx::query_as("select id, size_bytes from releases where name = $1 and digest = $2")
                .bind(name)
                .bind(digest.as_str())
        }
    };
    let row: Option<(Uuid, i64)> = query.fetch_optional(&mut *tx).await?;
    Ok(row.map(|(id, size)| ResolvedRelease { id: ReleaseId::from_uuid(id), size_bytes: unsigned(size) }))
}

impl Store {
    /// Makes the release unless it exists, and points the tag at it.
    pub(crate) async fn template_publish(
        &self,
        request: &PublishRelease,
        claim: Option<&Claim>,
    ) -> Result<Claimed<Release>, StoreError> {
        let mut tx = self.begin().await?;
        if let Some(earlier) = super::idempotency::begin(&mut tx, claim).await? {
            return Ok(earlier.into());
        }
        // The location may have moved; the content can't, it is named by its digest.
        let row: ReleaseRow = sqlx::query_as(
            "insert into releases (id, name, digest, location, size_bytes) values ($1, $2, $3, $4, $5) \
             on conflict (name, digest) do update set location = excluded.location \
             returning id, name, digest, size_bytes, created_at",
        )
        .bind(ReleaseId::new().uuid())
        .bind(&request.name)
        .bind(request.digest.as_str())
        .bind(&request.location)
        .bind(signed(request.size_bytes))
        .fetch_one(&mut *tx)
        .await?;
        sqlx::query(
            "insert into template_tags (name, tag, release_id) values ($1, $2, $3) \
             on conflict (name, tag) do update set release_id = excluded.release_id, moved_at = now_ms()",
        )
        .bind(&request.name)
        .bind(&request.tag)
        .bind(row.id)
        .execute(&mut *tx)
        .await?;
        let release = Release::try_from(row)?;
        super::idempotency::finish(&mut tx, claim, 201, &release).await?;
        tx.commit().await?;
        Ok(Claimed::Done(release))
    }

    /// In order of their names, those after `after`.
    pub(crate) async fn template_list(
        &self,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Vec<Template>, StoreError> {
        let names: Vec<(String,)> = sqlx::query_as(
            "select distinct name from releases where ($1::text is null or name > $1) order by name limit $2",
        )
        .bind(after)
        .bind(i64::from(limit))
        .fetch_all(self.pool())
        .await?;
        let names: Vec<String> = names.into_iter().map(|(name,)| name).collect();
        self.templates(&names).await
    }

    pub(crate) async fn template_get(&self, name: &str) -> Result<Option<Template>, StoreError> {
        Ok(self.templates(&[name.to_owned()]).await?.pop())
    }

    async fn templates(&self, names: &[String]) -> Result<Vec<Template>, StoreError> {
        let releases: Vec<ReleaseRow> = sqlx::query_as(
            "select id, name, digest, size_bytes, created_at from releases where name = any($1) order by id desc",
        )
        .bind(names)
        .fetch_all(self.pool())
        .await?;
        let tags: Vec<(String, String, String)> = sqlx::query_as(
            "select t.name, t.tag, r.digest from template_tags t join releases r on r.id = t.release_id \
             where t.name = any($1)",
        )
        .bind(names)
        .fetch_all(self.pool())
        .await?;
        let mut found: BTreeMap<String, Template> = BTreeMap::new();
        for row in releases {
            let release = Release::try_from(row)?;
            let empty =
                || Template { name: release.name.clone(), tags: BTreeMap::new(), releases: Vec::new() };
            found.entry(release.name.clone()).or_insert_with(empty).releases.push(release);
        }
        for (name, tag, digest) in tags {
            if let Some(template) = found.get_mut(&name) {
                template.tags.insert(tag, coded(digest.parse().ok(), "digest", &digest)?);
            }
        }
        Ok(found.into_values().collect())
    }
}
