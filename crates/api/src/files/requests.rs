//! What each operation on files is asked with.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{
    FileMode, FilePath, check_owner, check_user,
    query::{Parameters, Query, path_of},
};
use crate::{Base64Bytes, FieldErrors, Problem, limits};

/// Read from a query string, and written as one.
pub trait FromQuery: Sized {
    #[expect(clippy::result_large_err, reason = "once a request, and on its way to being rendered")]
    fn from_query(query: &str) -> Result<Self, Problem>;
    fn to_query(&self) -> String;
}

macro_rules! query {
    ($(#[$doc:meta])* $name:ident { $($(#[$attribute:meta])* $field:ident: $kind:ty,)* }
     from $parameters:ident $from:block to $query:ident, $this:ident $to:block) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Default, PartialEq, Eq, IntoParams)]
        #[into_params(parameter_in = Query)]
        pub struct $name {
            /// Percent-encoded bytes: at most 4,095, no NUL. A relative path begins at the user's home.
            #[param(value_type = String)]
            pub path: FilePath,
            $($(#[$attribute])* pub $field: $kind,)*
            /// Name or uid, whose rights apply. The template's default user when absent.
            pub user: Option<String>,
        }

        impl FromQuery for $name {
            fn from_query(query: &str) -> Result<Self, Problem> {
                let mut parameters = Parameters::parse(query);
                let (path, user) = (parameters.path("path"), parameters.user());
                let $parameters = &mut parameters;
                let ($($field,)*) = $from;
                parameters.finish()?;
                Ok(Self { path, $($field,)* user })
            }

            fn to_query(&self) -> String {
                let $this = self;
                let $query = Query::default().path("path", &self.path).text("user", self.user.as_ref());
                let whole = $to;
                whole.finish()
            }
        }
    };
}

query! {
    StatQuery {
        /// What a symbolic link points at, rather than the link.
        #[param(required = false, default = false)]
        follow: bool,
    }
    from parameters { (parameters.flag("follow", false),) }
    to query, this { query.flag("follow", this.follow, false) }
}

query! {
    ListQuery {
        /// 1 (the directory's own entries) to 64. Symbolic links are not followed.
        #[param(minimum = 1, maximum = 64, default = 1)]
        depth: Option<u32>,
        /// Entries on a page, 1 to 1000; 200 when absent.
        #[param(minimum = 1, maximum = 1000, default = 200)]
        limit: Option<u32>,
        /// `next_cursor` of the page before.
        cursor: Option<String>,
    }
    from parameters { page(parameters) }
    to query, this {
        query.text("depth", this.depth).text("limit", this.limit).text("cursor", this.cursor.as_ref())
    }
}

/// A file, and as whom.
#[derive(Debug, Clone, Default, PartialEq, Eq, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct PlaceQuery {
    /// Percent-encoded bytes: at most 4,095, no NUL. A relative path begins at the user's home.
    #[param(value_type = String)]
    pub path: FilePath,
    /// Name or uid, whose rights apply. The template's default user when absent.
    pub user: Option<String>,
}

impl FromQuery for PlaceQuery {
    fn from_query(query: &str) -> Result<Self, Problem> {
        let mut parameters = Parameters::parse(query);
        let (path, user) = (parameters.path("path"), parameters.user());
        parameters.finish()?;
        Ok(Self { path, user })
    }

    fn to_query(&self) -> String {
        Query::default().path("path", &self.path).text("user", self.user.as_ref()).finish()
    }
}

query! {
    RemoveQuery {
        /// A directory with all it holds. Never follows a symbolic link, and stays on one filesystem.
        #[param(required = false, default = false)]
        recursive: bool,
    }
    from parameters { (parameters.flag("recursive", false),) }
    to query, this { query.flag("recursive", this.recursive, false) }
}

query! {
    WatchQuery {
        /// Everything below, too: at most 8,192 directories.
        #[param(required = false, default = false)]
        recursive: bool,
    }
    from parameters { (parameters.flag("recursive", false),) }
    to query, this { query.flag("recursive", this.recursive, false) }
}

/// One part of an upload. On the wire these are the parameters `upload`, `offset` and `complete`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UploadPart {
    /// 1 to 64 of `A-Z a-z 0-9 _ -`.
    pub id: String,
    /// Where this part begins.
    pub offset: u64,
    /// This part is the last.
    pub complete: bool,
}

/// How a file is written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WriteQuery {
    pub path: FilePath,
    pub mode: Option<FileMode>,
    pub owner: Option<String>,
    pub parents: bool,
    pub exclusive: bool,
    pub upload: Option<UploadPart>,
    pub user: Option<String>,
}

/// The same as parameters, for the document.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "describes; `WriteQuery` is what is used")]
pub struct WriteParams {
    /// Percent-encoded bytes: at most 4,095, no NUL. A relative path begins at the user's home.
    path: String,
    /// Permission bits in octal. When absent those of the file that is replaced, else 0644.
    #[param(value_type = Option<FileMode>)]
    mode: Option<String>,
    /// `USER` or `USER:GROUP`, by name or number. When absent the user.
    owner: Option<String>,
    /// Make directories that are missing on the way.
    #[param(required = false, default = false)]
    parents: bool,
    /// Refuse to replace a file.
    #[param(required = false, default = false)]
    exclusive: bool,
    /// Keep what has come when the request breaks, under this id: 1 to 64 of `A-Z a-z 0-9 _ -`.
    upload: Option<String>,
    /// Where in the file the body begins: the end of what is kept of the upload, or 0 to begin anew.
    #[param(required = false, default = 0)]
    offset: u64,
    /// `false`: the body is not the last part of the upload.
    #[param(required = false, default = true)]
    complete: bool,
    /// Name or uid, whose rights apply. The template's default user when absent.
    user: Option<String>,
}

impl FromQuery for WriteQuery {
    fn from_query(query: &str) -> Result<Self, Problem> {
        let mut parameters = Parameters::parse(query);
        let (path, user) = (parameters.path("path"), parameters.user());
        let (mode, owner) = (parameters.mode("mode"), parameters.text("owner"));
        check_owner(owner.as_deref(), parameters.errors());
        let (parents, exclusive) = (parameters.flag("parents", false), parameters.flag("exclusive", false));
        let upload = upload(&mut parameters);
        parameters.finish()?;
        Ok(Self { path, mode, owner, parents, exclusive, upload, user })
    }

    fn to_query(&self) -> String {
        let upload = self.upload.as_ref();
        Query::default()
            .path("path", &self.path)
            .text("mode", self.mode)
            .text("owner", self.owner.as_ref())
            .flag("parents", self.parents, false)
            .flag("exclusive", self.exclusive, false)
            .text("upload", upload.map(|upload| &upload.id))
            .text("offset", upload.map(|upload| upload.offset))
            .flag("complete", upload.is_none_or(|upload| upload.complete), true)
            .text("user", self.user.as_ref())
            .finish()
    }
}

fn upload(parameters: &mut Parameters) -> Option<UploadPart> {
    let id = parameters.text("upload");
    let offset: Option<u64> = parameters.number("offset");
    let complete = parameters.flag("complete", true);
    let errors = parameters.errors();
    if let Some(id) = &id {
        let valid = (1..=limits::UPLOAD_ID_CHARS).contains(&id.len())
            && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
        errors.require(valid, "upload", "must have 1 to 64 letters, digits, `-` or `_`");
    }
    errors.require(id.is_some() || offset.is_none_or(|at| at == 0), "offset", "needs an upload");
    errors.require(offset.is_none_or(|at| i64::try_from(at).is_ok()), "offset", "is larger than any file");
    errors.require(id.is_some() || complete, "complete", "needs an upload");
    Some(UploadPart { id: id?, offset: offset.unwrap_or(0), complete })
}

fn page(parameters: &mut Parameters) -> (Option<u32>, Option<u32>, Option<String>) {
    let depth: Option<u32> = parameters.number("depth");
    let limit: Option<u32> = parameters.number("limit");
    let cursor = parameters.text("cursor");
    let errors = parameters.errors();
    let (depths, sizes) = (1..=limits::FILES_DEPTH, 1..=limits::FILES_MAX);
    errors.require(depth.is_none_or(|depth| depths.contains(&depth)), "depth", "must be 1 to 64");
    errors.require(limit.is_none_or(|limit| sizes.contains(&limit)), "limit", "must be 1 to 1000");
    let known = cursor.as_deref().is_none_or(|cursor| path_of(cursor).is_some());
    errors.require(known, "cursor", "not a cursor that a page answered");
    (depth, limit, cursor)
}

/// Body of `POST /v1/sandboxes/{id}/files/directories`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateDirectory {
    /// At most 4,095 bytes. A relative path begins at the user's home.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Instead of `path`, for one that isn't UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_base64: Option<Base64Bytes>,
    /// Make missing directories on the way, and take one that is there already.
    #[serde(default)]
    pub parents: bool,
    /// 0755 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<FileMode>,
    /// Name or uid, whose rights apply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
}

impl CreateDirectory {
    pub fn checked_path(&self) -> Result<FilePath, FieldErrors> {
        let mut errors = FieldErrors::default();
        check_user("user", self.user.as_deref(), &mut errors);
        let path = named("path", self.path.as_deref(), self.path_base64.as_ref(), &mut errors);
        errors.finish()?;
        Ok(path)
    }
}

/// Body of `POST /v1/sandboxes/{id}/files/move`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MoveFile {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_base64: Option<Base64Bytes>,
    /// The new path itself, not a directory to move into.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_base64: Option<Base64Bytes>,
    /// Whether a file at `to` may be replaced; otherwise it is a problem.
    #[serde(default)]
    pub replace: bool,
    /// Name or uid, whose rights apply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
}

impl MoveFile {
    /// From and to.
    pub fn checked_paths(&self) -> Result<(FilePath, FilePath), FieldErrors> {
        let mut errors = FieldErrors::default();
        check_user("user", self.user.as_deref(), &mut errors);
        let from = named("from", self.from.as_deref(), self.from_base64.as_ref(), &mut errors);
        let to = named("to", self.to.as_deref(), self.to_base64.as_ref(), &mut errors);
        errors.finish()?;
        Ok((from, to))
    }
}

/// One of the two forms of a path.
fn named(field: &str, text: Option<&str>, exact: Option<&Base64Bytes>, errors: &mut FieldErrors) -> FilePath {
    errors.require(text.is_none() || exact.is_none(), field, "is given twice");
    let path = FilePath::from_json(text, exact).unwrap_or_default();
    path.check(field, errors);
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused<T: FromQuery>(query: &str) -> String {
        T::from_query(query).err().expect("the query to be refused").field.unwrap()
    }

    #[test]
    fn queries_survive_being_written() {
        let write = WriteQuery {
            path: FilePath::from(b"/a b/\xff"),
            mode: FileMode::new(0o600),
            owner: Some("a:1".to_owned()),
            parents: true,
            exclusive: true,
            upload: Some(UploadPart { id: "u-1".to_owned(), offset: 7, complete: false }),
            user: Some("root".to_owned()),
        };
        assert_eq!(WriteQuery::from_query(&write.to_query()).unwrap(), write);
        let list = ListQuery { path: "/".into(), depth: Some(2), limit: Some(3), ..ListQuery::default() };
        assert_eq!(ListQuery::from_query(&list.to_query()).unwrap(), list);
        let stat = StatQuery { path: "+".into(), follow: true, user: None };
        assert_eq!(StatQuery::from_query(&stat.to_query()).unwrap(), stat);
    }

    #[test]
    fn what_is_out_of_range_is_named() {
        assert_eq!(refused::<ListQuery>("path=/&depth=65"), "depth");
        assert_eq!(refused::<ListQuery>("path=/&limit=0"), "limit");
        assert_eq!(refused::<ListQuery>("path=/&cursor=!"), "cursor");
        assert_eq!(refused::<WriteQuery>("path=/&offset=1"), "offset");
        assert_eq!(refused::<WriteQuery>("path=/&complete=false"), "complete");
        assert_eq!(refused::<WriteQuery>("path=/&upload=a/b"), "upload");
        assert_eq!(refused::<WriteQuery>("path=/&owner=a:b:c"), "owner");
        assert_eq!(refused::<WriteQuery>("path=/&mode=0o644"), "mode");
    }

    #[test]
    fn a_path_in_json_has_one_form() {
        let fields = |body: MoveFile| {
            let errors = body.checked_paths().unwrap_err().into_vec();
            errors.into_iter().map(|error| error.field).collect::<Vec<_>>()
        };
        assert_eq!(fields(MoveFile::default()), ["from", "to"]);
        let twice = MoveFile {
            from: Some("a".to_owned()),
            from_base64: Some(b"a".to_vec().into()),
            to: Some("b".to_owned()),
            ..MoveFile::default()
        };
        assert_eq!(fields(twice), ["from"]);
    }
}
