//! `/openapi.json`, and `/docs`: the same as a page to read. It needs no other host and no script.

use std::sync::Arc;

use askama::Template;
use axum::{
    Extension,
    response::{Html, IntoResponse, Response},
};
use http::{HeaderValue, header};
use utoipa::openapi::OpenApi;

/// Both, rendered once.
#[derive(Clone)]
pub(super) struct Pages {
    json: Arc<str>,
    html: Arc<str>,
}

#[derive(Template)]
#[template(path = "docs.html")]
struct DocsPage {
    title: String,
    description: Vec<String>,
    groups: Vec<Group>,
    schemas: Vec<Schema>,
}

struct Group {
    name: String,
    operations: Vec<Operation>,
}

struct Operation {
    id: String,
    method: String,
    path: String,
    summary: String,
    description: String,
    parameters: Vec<Parameter>,
    request: Option<String>,
    answers: Vec<Answer>,
}

struct Parameter {
    name: String,
    place: String,
    description: String,
}

struct Answer {
    status: String,
    description: String,
    schemas: Vec<String>,
}

struct Schema {
    name: String,
    description: String,
    json: String,
}

impl Pages {
    pub(super) fn new(document: &OpenApi) -> Self {
        let value = serde_json::to_value(document).unwrap_or_default();
        let html = DocsPage::new(&value).render().unwrap_or_else(|error| format!("cannot render: {error}"));
        let json = serde_json::to_string_pretty(&value).unwrap_or_default();
        Self { json: json.into(), html: html.into() }
    }
}

fn text(value: &serde_json::Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// The name behind a `$ref`.
fn referred(schema: &serde_json::Value) -> Option<String> {
    schema["$ref"].as_str().and_then(|path| path.rsplit('/').next()).map(ToOwned::to_owned)
}

impl DocsPage {
    fn new(document: &serde_json::Value) -> Self {
        let mut groups: Vec<Group> = Vec::new();
        for (path, item) in document["paths"].as_object().into_iter().flatten() {
            for (method, operation) in item.as_object().into_iter().flatten() {
                let name = text(&operation["tags"][0]);
                let operation = Operation::new(path, method, operation);
                match groups.iter_mut().find(|group| group.name == name) {
                    Some(group) => group.operations.push(operation),
                    None => groups.push(Group { name, operations: vec![operation] }),
                }
            }
        }
        let schemas = document["components"]["schemas"].as_object().into_iter().flatten();
        let schema = |(name, schema): (&String, &serde_json::Value)| Schema {
            name: name.clone(),
            description: text(&schema["description"]),
            json: serde_json::to_string_pretty(schema).unwrap_or_default(),
        };
        Self {
            title: text(&document["info"]["title"]),
            description: text(&document["info"]["description"])
                .split("\n\n")
                .map(ToOwned::to_owned)
                .collect(),
            groups,
            schemas: schemas.map(schema).collect(),
        }
    }
}

impl Operation {
    fn new(path: &str, method: &str, value: &serde_json::Value) -> Self {
        let parameters = value["parameters"].as_array().into_iter().flatten().map(|parameter| Parameter {
            name: text(&parameter["name"]),
            place: text(&parameter["in"]),
            description: text(&parameter["description"]),
        });
        let answers = value["responses"].as_object().into_iter().flatten().map(|(status, answer)| Answer {
            status: status.clone(),
            description: text(&answer["description"]),
            schemas: contents(&answer["content"]),
        });
        Self {
            id: text(&value["operationId"]),
            method: method.to_uppercase(),
            path: path.to_owned(),
            summary: text(&value["summary"]),
            description: text(&value["description"]),
            parameters: parameters.collect(),
            request: contents(&value["requestBody"]["content"]).pop(),
            answers: answers.collect(),
        }
    }
}

fn contents(content: &serde_json::Value) -> Vec<String> {
    content.as_object().into_iter().flatten().filter_map(|(_, media)| referred(&media["schema"])).collect()
}

pub(super) async fn openapi_json(Extension(pages): Extension<Pages>) -> Response {
    let json = HeaderValue::from_static(space_api::headers::JSON);
    ([(header::CONTENT_TYPE, json)], pages.json.to_string()).into_response()
}

pub(super) async fn docs(Extension(pages): Extension<Pages>) -> Response {
    let policy = HeaderValue::from_static("default-src 'none'; style-src 'unsafe-inline'");
    ([(header::CONTENT_SECURITY_POLICY, policy)], Html(pages.html.to_string())).into_response()
}
