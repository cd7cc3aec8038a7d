//! Parts of a request, with errors that name the field at fault.

use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use axum::{
    body::to_bytes,
    extract::{FromRequest, FromRequestParts, Request},
};
use bytes::Bytes;
use http::{HeaderMap, header, request::Parts};
use serde::de::DeserializeOwned;
use space_api::{FieldErrors, Problem, ProblemCode, headers, limits};

use super::problem::Failure;
use crate::{app::auth::Caller, store::idempotency::Claim};

/// A body must have arrived after so long.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// Parameters of the path. One that is no id names nothing that exists.
pub(super) struct Path<T>(pub(super) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Path<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        match axum::extract::Path::<T>::from_request_parts(parts, state).await {
            Ok(axum::extract::Path(value)) => Ok(Self(value)),
            Err(rejection) => {
                tracing::debug!(%rejection, "a path's parameter is no id");
                Err(Failure::new(ProblemCode::NotFound, "the path holds something that is no id"))
            }
        }
    }
}

/// The query string.
pub(super) struct Query<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Failure> {
        match axum::extract::Query::try_from_uri(&parts.uri) {
            Ok(axum::extract::Query(value)) => Ok(Self(value)),
            Err(rejection) => Err(query_problem(&rejection.body_text()).into()),
        }
    }
}

/// serde's wording is the only sign of what went wrong.
fn query_problem(text: &str) -> Problem {
    let text = text.trim_start_matches("Failed to deserialize query string: ");
    let shortened: String = text.chars().take(200).collect();
    if let Some(field) = text.split_once("unknown field `").and_then(|(_, rest)| rest.split('`').next()) {
        let field: String = field.chars().take(64).collect();
        return Problem::new(ProblemCode::UnknownField, format!("no such query parameter: {field}"))
            .with_field(field);
    }
    match text.split_once(": ") {
        Some((field, detail)) if !field.contains(' ') => {
            let detail: String = detail.chars().take(200).collect();
            FieldErrors::one(field.chars().take(64).collect::<String>(), detail).into()
        }
        Some(_) | None => Problem::new(ProblemCode::InvalidRequest, shortened),
    }
}

/// The pairs of a query string whose parameters repeat.
pub(super) struct Pairs(pub(super) Vec<(String, String)>);

impl<S: Send + Sync> FromRequestParts<S> for Pairs {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Failure> {
        match axum::extract::Query::try_from_uri(&parts.uri) {
            Ok(axum::extract::Query(pairs)) => Ok(Self(pairs)),
            Err(rejection) => Err(query_problem(&rejection.body_text()).into()),
        }
    }
}

/// A request with a JSON body: that, and what an idempotency key is compared by.
pub(super) struct Post<T> {
    pub(super) body: T,
    pub(super) key: Option<String>,
    route: String,
    body_hash: [u8; 32],
}

impl<T> Post<T> {
    /// The use of the idempotency key, if one was sent.
    pub(super) fn claim(&self, caller: &Caller) -> Option<Claim> {
        self.key.as_ref().map(|key| Claim {
            tenant_id: caller.tenant_id,
            // A space is in no key: those of a project can't meet those of the tenant.
            key: match caller.grants.project_id {
                Some(project) => format!("{project} {key}"),
                None => key.clone(),
            },
            route: self.route.clone(),
            body_hash: self.body_hash,
        })
    }
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Post<T> {
    type Rejection = Failure;

    async fn from_request(request: Request, _: &S) -> Result<Self, Failure> {
        let (parts, body) = request.into_parts();
        let key = idempotency_key(&parts.headers)?;
        let body = read(&parts.headers, body).await?;
        if !body.trim_ascii().is_empty() && !is_json(&parts.headers) {
            return Err(Failure::new(ProblemCode::UnsupportedMediaType, "send the body as application/json"));
        }
        let mut body_hash = [0; 32];
        body_hash.copy_from_slice(digest(&SHA256, &body).as_ref());
        let route = format!("{} {}", parts.method, parts.uri.path());
        let parsed = space_api::body::parse(&body)?;
        // serde reads an array into a structure too, field by field; that is not the contract.
        if body.trim_ascii().first().is_some_and(|first| *first != b'{') {
            return Err(Failure::new(ProblemCode::InvalidRequest, "the body must be a JSON object"));
        }
        Ok(Self { body: parsed, key, route, body_hash })
    }
}

fn idempotency_key(fields: &HeaderMap) -> Result<Option<String>, Failure> {
    let Some(value) = fields.get(headers::IDEMPOTENCY_KEY) else { return Ok(None) };
    headers::validate_idempotency_key(value.as_bytes())?;
    Ok(value.to_str().ok().map(ToOwned::to_owned))
}

async fn read(headers: &HeaderMap, body: axum::body::Body) -> Result<Bytes, Failure> {
    let too_large = || {
        let detail = format!("at most {} bytes", limits::BODY_BYTES);
        Failure::new(ProblemCode::BodyTooLarge, detail)
    };
    let announced =
        headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|length| length > limits::BODY_BYTES as u64) {
        return Err(too_large());
    }
    match tokio::time::timeout(BODY_TIMEOUT, to_bytes(body, limits::BODY_BYTES)).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(error)) if is_length_limit(&error) => Err(too_large()),
        Ok(Err(_)) => Err(Failure::new(ProblemCode::InvalidRequest, "the body broke off")),
        Err(_) => Err(Failure::new(ProblemCode::Timeout, "the body did not arrive in time")),
    }
}

fn is_length_limit(error: &axum::Error) -> bool {
    use std::error::Error as _;
    error.source().is_some_and(<dyn std::error::Error>::is::<http_body_util::LengthLimitError>)
}

fn is_json(fields: &HeaderMap) -> bool {
    let value = fields.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = value.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case(headers::JSON)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parameter_at_fault_is_named() {
        let field = |text: &str| {
            let problem = query_problem(&format!("Failed to deserialize query string: {text}"));
            (problem.code, problem.field)
        };
        assert_eq!(
            field("wait: invalid digit found in string"),
            (ProblemCode::InvalidField, Some("wait".into()))
        );
        assert_eq!(
            field("unknown field `w`, expected `wait`"),
            (ProblemCode::UnknownField, Some("w".into()))
        );
        assert_eq!(
            field("w: unknown field `w`, expected `wait`"),
            (ProblemCode::UnknownField, Some("w".into()))
        );
        assert_eq!(field("something else"), (ProblemCode::InvalidRequest, None));
    }
}
