//! A WebSocket, opened by the same HTTP client as every other call: its TLS, its addresses, its errors.

use reqwest::{Method, StatusCode, Upgraded, header};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        handshake::{client::generate_key, derive_accept_key},
        protocol::{Role, WebSocketConfig},
    },
};

use crate::{
    client::{Call, Client, ClientError},
    terminal::{OUTPUT_HEAD_BYTES, SUBPROTOCOL},
};

pub(super) type Socket = WebSocketStream<Upgraded>;

/// The server's output is in pieces of 32 KiB; nothing that it says is much longer.
const LONGEST_MESSAGE: usize = 1024 * 1024 + OUTPUT_HEAD_BYTES;
const BUFFER: usize = 64 * 1024;

pub(super) async fn open(
    client: &Client,
    path: &str,
    query: Vec<(&'static str, String)>,
) -> Result<Socket, ClientError> {
    let key = generate_key();
    let request = client
        .stream_request(&Call::new(Method::GET, path).query(query), None)?
        .header(header::CONNECTION, "Upgrade")
        .header(header::UPGRADE, "websocket")
        .header(header::SEC_WEBSOCKET_VERSION, "13")
        .header(header::SEC_WEBSOCKET_PROTOCOL, SUBPROTOCOL)
        .header(header::SEC_WEBSOCKET_KEY, &key);
    let lost = || ClientError::StreamLost { url: client.url().to_string() };
    let sent = tokio::time::timeout(client.answer_deadline, request.send()).await;
    let response = sent.map_err(|_elapsed| lost())?.map_err(|source| client.unreachable(source))?;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Err(client.refusal(response).await);
    }
    let accepted = response.headers().get(header::SEC_WEBSOCKET_ACCEPT);
    if accepted.is_none_or(|accepted| accepted.as_bytes() != derive_accept_key(key.as_bytes()).as_bytes()) {
        return Err(ClientError::Status { status: 101, url: client.url().to_string() });
    }
    let upgraded = response.upgrade().await.map_err(|source| client.unreachable(source))?;
    let config = WebSocketConfig::default()
        .read_buffer_size(BUFFER)
        .max_message_size(Some(LONGEST_MESSAGE))
        .max_frame_size(Some(LONGEST_MESSAGE));
    Ok(WebSocketStream::from_raw_socket(upgraded, Role::Client, Some(config)).await)
}
