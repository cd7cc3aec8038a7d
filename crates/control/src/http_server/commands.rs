//! `/v1/sandboxes/{id}/commands` and `/v1/sandboxes/{id}/exec`.

use std::sync::Arc;

use axum::{
    Json,
    extract::{FromRequestParts, State},
    response::{IntoResponse as _, Response},
};
use futures::{FutureExt as _, StreamExt as _};
use http::{HeaderMap, StatusCode, header, request::Parts};
use space_api::{
    Page, Problem, ProblemCode,
    commands::{
        AttachQuery, Command, CommandCreated, CreateCommand, ExecResult, SignalCommand, StdinWritten,
        WriteStdin,
    },
    headers,
    sse::Output,
    terminal::TerminalSize,
};
use space_types::{AttachClaims, CommandId, SandboxId};

use super::{
    answer::repeated,
    caller::{Attempt, Commands, bearer},
    extract::{Path, Post, Query},
    problem::Failure,
    sse,
};
use crate::app::{App, AppError, command_stream::Target, commands::Attacher, error::Answer};

/// Create a command
///
/// It starts when somebody attaches to it. With an `Idempotency-Key` the command's id follows from the key.
#[utoipa::path(post, path = "/v1/sandboxes/{sandbox_id}/commands", tag = "commands",
    params(("sandbox_id" = SandboxId, Path)), request_body = CreateCommand,
    responses(
        (status = 201, description = "The command and where to attach.", body = CommandCreated),
        (status = "default", description = "A problem.", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn command_create(
    Commands(caller): Commands,
    State(app): State<Arc<App>>,
    Path(sandbox): Path<SandboxId>,
    post: Post<CreateCommand>,
) -> Result<(StatusCode, Json<CommandCreated>), Failure> {
    let created = app.command_create(caller.reach(), sandbox, &post.body, post.key.as_deref()).await?;
    Ok((StatusCode::CREATED, Json(created)))
}

/// List commands
///
/// All that the sandbox remembers, newest first, on one page.
#[utoipa::path(get, path = "/v1/sandboxes/{sandbox_id}/commands", tag = "commands",
    params(("sandbox_id" = SandboxId, Path)),
    responses(
        (status = 200, description = "The commands.", body = Page<Command>),
        (status = "default", description = "A problem.", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn command_list(
    Commands(caller): Commands,
    State(app): State<Arc<App>>,
    Path(sandbox): Path<SandboxId>,
) -> Result<Json<Page<Command>>, Failure> {
    let items = app.command_list(caller.reach(), sandbox).await?;
    Ok(Json(Page { items, next_cursor: None }))
}

/// Get a command
#[utoipa::path(get, path = "/v1/sandboxes/{sandbox_id}/commands/{command_id}", tag = "commands",
    params(("sandbox_id" = SandboxId, Path), ("command_id" = CommandId, Path)),
    responses(
        (status = 200, description = "The command.", body = Command),
        (status = "default", description = "A problem.", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn command_get(
    Commands(caller): Commands,
    State(app): State<Arc<App>>,
    Path((sandbox, command)): Path<(SandboxId, CommandId)>,
) -> Result<Json<Command>, Failure> {
    Ok(Json(app.command_get(caller.reach(), sandbox, command).await?))
}

/// Attach to a command
///
/// Starts it unless it was started, then streams its events: `started`, `stdout`, `stderr`, `gap`, `exit`; `error`
/// when the stream ends early. `Last-Event-ID` continues behind an event, without it the stream begins with the
/// first one that is kept. Takes the attach token of the command or a key. Detaching neither stops nor blocks it.
#[utoipa::path(get, path = "/v1/sandboxes/{sandbox_id}/commands/{command_id}/attach", tag = "commands",
    params(("sandbox_id" = SandboxId, Path), ("command_id" = CommandId, Path), AttachQuery,
        ("Last-Event-ID" = Option<String>, Header, description = "`<generation>.<sequence>`")),
    responses(
        (status = 200, description = "A stream of events.", body = Output, content_type = "text/event-stream"),
        (status = "default", description = "A problem.", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn command_attach(
    attach: Attaching,
    State(app): State<Arc<App>>,
    fields: HeaderMap,
) -> Result<Response, Failure> {
    let after = sse::last_event_id(&fields)?;
    let reach = attach.attacher.reach();
    let key_ended = match attach.attacher {
        Attacher::Caller(caller) => sse::key_ended(&app, caller.key_id).left_future(),
        // Good until it expires, whatever becomes of keys.
        Attacher::Token => std::future::pending().right_future(),
    };
    let target = Target { reach, sandbox: attach.sandbox, command: attach.command, after, create: None };
    let stream = app.command_attach(target).await?.into_stream();
    Ok(sse::command_events(stream.take_until(key_ended)))
}

/// Write to a command's standard input
#[utoipa::path(post, path = "/v1/sandboxes/{sandbox_id}/commands/{command_id}/stdin", tag = "commands",
    params(("sandbox_id" = SandboxId, Path), ("command_id" = CommandId, Path)), request_body = WriteStdin,
    responses(
        (status = 200, description = "How much was taken.", body = StdinWritten),
        (status = "default", description = "A problem.", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn command_stdin(
    Commands(caller): Commands,
    State(app): State<Arc<App>>,
    Path((sandbox, command)): Path<(SandboxId, CommandId)>,
    post: Post<WriteStdin>,
) -> Result<Json<StdinWritten>, Failure> {
    Ok(Json(app.command_write_stdin(Some(caller.reach()), sandbox, command, &post.body).await?))
}

/// Signal a command
///
/// The signal goes to the process group of the command's leader. On a terminal another group may be in the
/// foreground: what a key does there (Ctrl-C) is a byte of input.
#[utoipa::path(post, path = "/v1/sandboxes/{sandbox_id}/commands/{command_id}/signal", tag = "commands",
    params(("sandbox_id" = SandboxId, Path), ("command_id" = CommandId, Path)), request_body = SignalCommand,
    responses(
        (status = 204, description = "Sent."),
        (status = "default", description = "A problem.", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn command_signal(
    Commands(caller): Commands,
    State(app): State<Arc<App>>,
    Path((sandbox, command)): Path<(SandboxId, CommandId)>,
    post: Post<SignalCommand>,
) -> Result<Response, Failure> {
    let claim = post.claim(&caller);
    let reach = Some(caller.reach());
    match app.command_signal(reach, sandbox, command, &post.body, claim.as_ref()).await? {
        Answer::New(()) => Ok(StatusCode::NO_CONTENT.into_response()),
        Answer::Repeated(response) => Ok(repeated(&response)),
    }
}

/// Resize a command's terminal
///
/// What runs in its foreground is told (SIGWINCH). The last size counts, so repeating it is harmless.
#[utoipa::path(post, path = "/v1/sandboxes/{sandbox_id}/commands/{command_id}/resize", tag = "commands",
    params(("sandbox_id" = SandboxId, Path), ("command_id" = CommandId, Path)), request_body = TerminalSize,
    responses(
        (status = 204, description = "It has that size."),
        (status = "default", description = "A problem.", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn command_resize(
    Commands(caller): Commands,
    State(app): State<Arc<App>>,
    Path((sandbox, command)): Path<(SandboxId, CommandId)>,
    post: Post<TerminalSize>,
) -> Result<StatusCode, Failure> {
    app.command_resize(Some(caller.reach()), sandbox, command, post.body).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Run a command
///
/// Creates a command, starts it and streams its events, the first of which is `command`. With
/// `Accept: application/json` the answer is one object when the command has ended. With an `Idempotency-Key` a
/// repeated request meets the same command.
#[utoipa::path(post, path = "/v1/sandboxes/{sandbox_id}/exec", tag = "commands",
    params(("sandbox_id" = SandboxId, Path)), request_body = CreateCommand,
    responses(
        (status = 200, description = "A stream of events, or the result.",
            content((Output = "text/event-stream"), (ExecResult = "application/json"))),
        (status = "default", description = "A problem.", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn exec(
    Commands(caller): Commands,
    State(app): State<Arc<App>>,
    Path(sandbox): Path<SandboxId>,
    fields: HeaderMap,
    post: Post<CreateCommand>,
) -> Result<Response, Failure> {
    let form = Form::accepted(&fields)?;
    let key_ended = sse::key_ended(&app, caller.key_id);
    let exec = app.exec(caller.reach(), sandbox, &post.body, post.key.as_deref()).await?;
    match form {
        Form::Stream => Ok(sse::command_events(exec.into_stream().take_until(key_ended))),
        Form::Json => Ok(Json(exec.into_result().await?).into_response()),
    }
}

/// The two forms of an answer of `exec`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Stream,
    Json,
}

impl Form {
    /// The first of the two that `Accept` names; a stream when it does not care.
    fn accepted(fields: &HeaderMap) -> Result<Self, Failure> {
        let value = fields.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or("*/*");
        let ranges = value.split(',').map(|range| range.split(';').next().unwrap_or_default().trim());
        for range in ranges {
            match range.to_ascii_lowercase().as_str() {
                headers::EVENT_STREAM | "text/*" | "*/*" => return Ok(Self::Stream),
                headers::JSON | "application/*" => return Ok(Self::Json),
                _ => {}
            }
        }
        Err(Failure::new(ProblemCode::NotAcceptable, "exec answers text/event-stream or application/json"))
    }
}

/// Who attaches to which command: the token or key is looked at before anything else.
pub(super) struct Attaching {
    pub(super) attacher: Attacher,
    pub(super) sandbox: SandboxId,
    pub(super) command: CommandId,
}

impl FromRequestParts<Arc<App>> for Attaching {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Failure> {
        let query = Query::<AttachQuery>::from_request_parts(parts, app).await;
        let in_query = query.as_ref().ok().and_then(|query| query.0.token.clone());
        let attaching = Self::authorised(parts, app, in_query).await?;
        query?;
        Ok(attaching)
    }
}

impl Attaching {
    /// By the token in the query, else by what `Authorization` holds.
    pub(super) async fn authorised(
        parts: &mut Parts,
        app: &Arc<App>,
        in_query: Option<String>,
    ) -> Result<Self, Failure> {
        let token = in_query.or_else(|| bearer(parts).map(ToOwned::to_owned));
        let token = token.filter(|token| AttachClaims::looks_like_one(token));
        let Some(token) = token else {
            let Commands(caller) = Commands::from_request_parts(parts, app).await?;
            let Path((sandbox, command)) = Path::from_request_parts(parts, app).await?;
            return Ok(Self { attacher: Attacher::Caller(caller), sandbox, command });
        };
        let path = Path::<(SandboxId, CommandId)>::from_request_parts(parts, app).await;
        let attempt = Attempt::begin(parts, app)?;
        let shown = path.map_err(|_no_ids| AppError::Unauthorized).and_then(|Path((sandbox, command))| {
            app.check_attach_token(&token, sandbox, command)?;
            Ok((sandbox, command))
        });
        let (sandbox, command) = attempt.end(shown)?;
        Ok(Self { attacher: Attacher::Token, sandbox, command })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_follows_accept() {
        let form = |accept: &'static str| {
            let mut fields = HeaderMap::new();
            fields.insert(header::ACCEPT, http::HeaderValue::from_static(accept));
            Form::accepted(&fields).ok()
        };
        assert_eq!(form("text/event-stream"), Some(Form::Stream));
        assert_eq!(form("*/*"), Some(Form::Stream));
        assert_eq!(form("application/json;q=0.9, */*"), Some(Form::Json));
        assert_eq!(form("image/png"), None);
        assert_eq!(Form::accepted(&HeaderMap::new()).ok(), Some(Form::Stream));
    }
}
