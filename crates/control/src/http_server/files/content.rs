//! `/v1/sandboxes/{id}/files/content`: a file's bytes.

use crate::grants::Reach;
use crate::http_server::caller::Files;
use std::sync::Arc;

use axum::{
    Json,
    body::Body,
    extract::State,
    response::{IntoResponse as _, Response},
};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use space_api::{
    Problem, ProblemCode,
    files::{
        ByteRange, FileInfo, FileKind, FilePath, PlaceQuery, RawBytes, StatQuery, UploadKept, WriteParams,
        WriteQuery,
    },
    headers,
};
use space_types::SandboxId;

use super::{
    super::{extract::Path, problem::Failure},
    FileQuery,
    body::{describe, download, drain},
    range::{Conditions, etag},
};
use crate::app::{App, file_stream::FileBytes, file_upload::Written};

/// Read a file
///
/// Its bytes. `Range` asks for a part of it: one range of bytes (`bytes=5-9`, `bytes=5-`, `bytes=-5`); with `If-Range`
/// only of the version that its `ETag` names, else the whole file. `If-None-Match` asks for nothing where the version
/// is known. An answer that breaks off before its end is an error, never a short file; what is written to the file
/// meanwhile may or may not be in it. `HEAD` answers the same without the bytes.
#[utoipa::path(get, path = "/v1/sandboxes/{sandbox_id}/files/content", tag = "files",
    params(("sandbox_id" = SandboxId, Path), PlaceQuery,
        ("Range" = Option<String>, Header), ("If-Range" = Option<String>, Header),
        ("If-None-Match" = Option<String>, Header)),
    responses(
        (status = 200, description = "The file.", content_type = "application/octet-stream", body = RawBytes),
        (status = 206, description = "A part of it, which `Content-Range` tells.",
            content_type = "application/octet-stream", body = RawBytes),
        (status = 304, description = "The caller has this version."),
        (status = 416, description = "There is no such range; `Content-Range` tells the size.", body = Problem,
            content_type = "application/problem+json"),
        (status = "default", description = "A problem.", body = Problem, content_type = "application/problem+json")))]
pub(in crate::http_server) async fn file_read(
    Files(caller): Files,
    State(app): State<Arc<App>>,
    Path(sandbox): Path<SandboxId>,
    FileQuery(query): FileQuery<PlaceQuery>,
    method: Method,
    fields: HeaderMap,
) -> Result<Response, Failure> {
    let conditions = Conditions::of(&fields);
    let reader = Reader { app: &app, reach: caller.reach(), sandbox, query: &query };
    if method == Method::HEAD {
        return reader.head(&conditions).await;
    }
    match conditions.range {
        None => reader.whole(&conditions).await,
        Some(wanted) => reader.part(&conditions, wanted).await,
    }
}

/// Write a file
///
/// The body is the content, of any size. The file appears under its name when all of it has come, whole and with its
/// mode and owner, or not at all; what is silent for 60 seconds is given up. Repeating is harmless.
///
/// With `upload` what has come is kept when the request breaks, and another request goes on at its end: an `offset`
/// elsewhere is `upload_offset`, whose `next_offset` tells where that is. Parts with `complete=false` are answered with
/// 200 and `next_offset`.
#[utoipa::path(put, path = "/v1/sandboxes/{sandbox_id}/files/content", tag = "files",
    params(("sandbox_id" = SandboxId, Path), WriteParams),
    request_body(content = RawBytes, content_type = "application/octet-stream"),
    responses(
        (status = 201, description = "The file is complete.", body = FileInfo),
        (status = 200, description = "The part is kept.", body = UploadKept),
        (status = "default", description = "A problem.", body = Problem, content_type = "application/problem+json")))]
pub(in crate::http_server) async fn file_write(
    Files(caller): Files,
    State(app): State<Arc<App>>,
    Path(sandbox): Path<SandboxId>,
    FileQuery(query): FileQuery<WriteQuery>,
    body: Body,
) -> Result<Response, Failure> {
    let mut body = body.into_data_stream();
    match app.file_write(caller.reach(), sandbox, &query, &mut body).await {
        Ok(Written::File(info)) => Ok((StatusCode::CREATED, Json(info)).into_response()),
        Ok(Written::Kept(kept)) => Ok(Json(kept).into_response()),
        Err(error) => {
            drain(&mut body).await;
            Err(error.into())
        }
    }
}

/// A kernel refuses to go to where its filesystem can have no file, so behind this the size is looked at first.
const FAR: u64 = 1 << 40;

struct Reader<'a> {
    app: &'a App,
    reach: Reach,
    sandbox: SandboxId,
    query: &'a PlaceQuery,
}

impl Reader<'_> {
    async fn head(&self, conditions: &Conditions) -> Result<Response, Failure> {
        let info = self.stat().await?;
        if conditions.has(&info) {
            return Ok(not_modified(&info));
        }
        match info.kind {
            FileKind::File => Ok(self.answer(StatusCode::OK, &info, size(&info), Body::empty())),
            FileKind::Directory => {
                Err(Failure::new(ProblemCode::FileIsADirectory, "a directory has no bytes to read"))
            }
            FileKind::Symlink
            | FileKind::Fifo
            | FileKind::Socket
            | FileKind::BlockDevice
            | FileKind::CharacterDevice
            | FileKind::Unknown => Err(Failure::new(ProblemCode::FileType, "neither a file nor a directory")),
        }
    }

    async fn whole(&self, conditions: &Conditions) -> Result<Response, Failure> {
        let (info, bytes) = self.open(0, None).await?;
        if conditions.has(&info) {
            return Ok(not_modified(&info));
        }
        let length = size(&info);
        let bytes = match length {
            Some(length) => bytes.promise(length),
            None => bytes,
        };
        Ok(self.answer(StatusCode::OK, &info, length, download(bytes)))
    }

    async fn part(&self, conditions: &Conditions, wanted: ByteRange) -> Result<Response, Failure> {
        let (first, last) = match wanted {
            ByteRange::From { first, last } => (first, last),
            ByteRange::Last(bytes) => (self.stat().await?.size.saturating_sub(bytes), None),
        };
        if first > FAR {
            let info = self.stat().await?;
            if first >= info.size {
                return Ok(unsatisfiable(info.size));
            }
        }
        let length = last.map(|last| (last - first).saturating_add(1));
        let (info, bytes) = self.open(first, length).await?;
        if conditions.has(&info) {
            return Ok(not_modified(&info));
        }
        let Some(size) = size(&info).filter(|_| conditions.range_is_of(&info)) else {
            drop(bytes);
            return self.whole(conditions).await;
        };
        if first >= size {
            return Ok(unsatisfiable(size));
        }
        let last = last.map_or(size - 1, |last| last.min(size - 1));
        let length = last - first + 1;
        let body = download(bytes.promise(length));
        let mut response = self.answer(StatusCode::PARTIAL_CONTENT, &info, Some(length), body);
        content_range(response.headers_mut(), &format!("bytes {first}-{last}/{size}"));
        Ok(response)
    }

    async fn open(&self, offset: u64, length: Option<u64>) -> Result<(FileInfo, FileBytes), Failure> {
        Ok(self.app.file_read(self.reach, self.sandbox, self.query, offset, length).await?)
    }

    async fn stat(&self) -> Result<FileInfo, Failure> {
        let PlaceQuery { path, user } = self.query.clone();
        Ok(self.app.file_stat(self.reach, self.sandbox, &StatQuery { path, follow: true, user }).await?)
    }

    fn answer(&self, status: StatusCode, info: &FileInfo, length: Option<u64>, body: Body) -> Response {
        let mut response = (status, body).into_response();
        let fields = response.headers_mut();
        validators(fields, info);
        describe(fields, headers::BYTES, name(&self.query.path));
        if let Some(length) = length {
            fields.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
        }
        response
    }
}

fn not_modified(info: &FileInfo) -> Response {
    let mut response = StatusCode::NOT_MODIFIED.into_response();
    validators(response.headers_mut(), info);
    response
}

/// Of a regular file. Those of /proc and their kind say 0 and have something to read all the same.
fn size(info: &FileInfo) -> Option<u64> {
    (info.kind == FileKind::File && info.size > 0).then_some(info.size)
}

fn name(path: &FilePath) -> &[u8] {
    path.names().last().unwrap_or(b"file")
}

fn validators(fields: &mut HeaderMap, info: &FileInfo) {
    fields.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    if let Ok(tag) = HeaderValue::from_str(&etag(info)) {
        fields.insert(header::ETAG, tag);
    }
    let printer = jiff::fmt::rfc2822::DateTimePrinter::new();
    // A time that the format can't write is none.
    let modified = printer.timestamp_to_rfc9110_string(&info.modified_at.as_jiff()).ok();
    if let Some(modified) = modified.and_then(|text| HeaderValue::from_str(&text).ok()) {
        fields.insert(header::LAST_MODIFIED, modified);
    }
}

fn content_range(fields: &mut HeaderMap, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        fields.insert(header::CONTENT_RANGE, value);
    }
}

fn unsatisfiable(size: u64) -> Response {
    let detail = format!("the file has {size} bytes");
    let mut response = Failure::new(ProblemCode::FileRange, detail).into_response();
    content_range(response.headers_mut(), &format!("bytes */{size}"));
    response
}
