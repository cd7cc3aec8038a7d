//! Ports of the sandbox, as the API has them. Each token has a number.

use axum::{
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};

use super::{SANDBOX, Shared, TIME};

pub(super) fn answer(shared: &Shared, method: &str, path: &str, body: &Value) -> Response {
    let (_, below) = path.split_once("/ports").unwrap();
    let below: Vec<&str> = below.split('/').skip(1).collect();
    match (method, below[..].as_ref()) {
        ("GET", []) => {
            let items = [8000, 8001].map(|port| shown(shared, port, visibility(shared, port)));
            json!({ "items": items }).to_string().into_response()
        }
        ("GET", [port]) => {
            let port = port.parse().unwrap();
            shown(shared, port, visibility(shared, port)).to_string().into_response()
        }
        ("PUT", [port]) => shown(shared, port.parse().unwrap(), body["visibility"].as_str().unwrap())
            .to_string()
            .into_response(),
        ("POST", [port, "tokens"]) => (StatusCode::CREATED, token(shared, port).to_string()).into_response(),
        ("DELETE", [_, "tokens"]) => StatusCode::NO_CONTENT.into_response(),
        (method, path) => panic!("not expected: {method} {path:?}"),
    }
}

fn visibility(shared: &Shared, port: u16) -> &'static str {
    if shared.script.public_ports.contains(&port) { "public" } else { "private" }
}

fn shown(shared: &Shared, port: u16, visibility: &str) -> Value {
    json!({ "port": port, "visibility": visibility, "url": url(shared, &port.to_string()) })
}

fn token(shared: &Shared, port: &str) -> Value {
    let number = {
        let mut tokens = shared.tokens.lock().unwrap();
        *tokens += 1;
        *tokens
    };
    let url = url(shared, port);
    json!({
        "token": format!("token-{number}"), "url": url, "link": format!("{url}/?space_port_token=token-{number}"),
        "header": "X-Space-Port-Token", "expires_at": TIME,
    })
}

fn url(shared: &Shared, port: &str) -> String {
    let (scheme, number) = shared.script.edge;
    format!("{scheme}://{port}-{}.localhost:{number}", SANDBOX.trim_start_matches("sbx_"))
}
