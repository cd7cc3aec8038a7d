//! Templates: names for published root filesystems. `GET /v1/templates`, and `POST` for admins.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use space_types::{Digest, ReleaseId, TemplateRef};
use utoipa::ToSchema;

use crate::{FieldErrors, Timestamp, limits};

/// Body of `POST /v1/templates`: publishes an image as a release and points `name:tag` at it. Publishing the
/// same digest again is harmless; publishing another moves the tag, and the older release stays.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PublishRelease {
    #[schema(example = "base")]
    pub name: String,
    #[serde(default = "default_tag")]
    #[schema(example = "latest")]
    pub tag: String,
    /// SHA-256 of the image. Nodes check it when they fetch the image.
    pub digest: Digest,
    /// Where nodes fetch it: `file:///…`, an absolute path on each node.
    #[schema(example = "file:///var/lib/space/templates/base.img")]
    pub location: String,
    /// Size of the image: a multiple of 4096.
    pub size_bytes: u64,
}

fn default_tag() -> String {
    TemplateRef::DEFAULT_TAG.to_owned()
}

impl PublishRelease {
    pub fn validate(&self) -> Result<(), FieldErrors> {
        let mut errors = FieldErrors::default();
        if let Err(error) = self.name.parse::<TemplateRef>() {
            errors.add("name", error.to_string());
        } else if self.name.contains([':', '@']) {
            errors.add("name", "the tag goes into `tag`, the digest into `digest`");
        } else if let Err(error) = format!("{}:{}", self.name, self.tag).parse::<TemplateRef>() {
            errors.add("tag", error.to_string());
        }
        let path = self.location.strip_prefix("file://").unwrap_or_default();
        let valid = path.starts_with('/')
            && path.len() <= limits::LOCATION_BYTES
            && !path.chars().any(char::is_control)
            && path.split('/').all(|part| part != "..");
        errors.require(valid, "location", "must be file:// and an absolute path without `..`");
        errors.require(
            (4096..=limits::IMAGE_BYTES).contains(&self.size_bytes) && self.size_bytes.is_multiple_of(4096),
            "size_bytes",
            format!("must be a multiple of 4096, at most {}", limits::IMAGE_BYTES),
        );
        errors.finish()
    }
}

/// A template: a name, its tags, and every release behind them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Template {
    pub name: String,
    /// What each tag means now.
    pub tags: BTreeMap<String, Digest>,
    /// Newest first.
    pub releases: Vec<Release>,
}

/// One published image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Release {
    pub id: ReleaseId,
    pub name: String,
    pub digest: Digest,
    pub size_bytes: u64,
    pub created_at: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> PublishRelease {
        PublishRelease {
            name: "base".into(),
            tag: "latest".into(),
            digest: Digest::from_sha256([7; 32]),
            location: "file:///var/lib/base.img".into(),
            size_bytes: 8192,
        }
    }

    #[test]
    fn a_bad_field_is_named() {
        assert_eq!(good().validate(), Ok(()));
        let table = [
            (PublishRelease { name: "Base".into(), ..good() }, "name"),
            (PublishRelease { name: "base:x".into(), ..good() }, "name"),
            (PublishRelease { tag: "a/b".into(), ..good() }, "tag"),
            (PublishRelease { tag: String::new(), ..good() }, "tag"),
            (PublishRelease { location: "/etc/shadow".into(), ..good() }, "location"),
            (PublishRelease { location: "file://host/x".into(), ..good() }, "location"),
            (PublishRelease { location: "file:///a/../b".into(), ..good() }, "location"),
            (PublishRelease { size_bytes: 0, ..good() }, "size_bytes"),
            (PublishRelease { size_bytes: 5000, ..good() }, "size_bytes"),
        ];
        for (request, field) in table {
            assert_eq!(request.validate().unwrap_err().as_slice()[0].field, field);
        }
    }
}
