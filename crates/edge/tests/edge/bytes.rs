//! CONNECT and changes of protocol: bytes both ways.

use futures::{SinkExt as _, StreamExt as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_tungstenite::tungstenite::{Message, client::IntoClientRequest as _};

use crate::kit::{Kit, guest, read_head, within};

#[tokio::test]
async fn each_direction_of_a_connection_ends_by_itself() {
    let kit = Kit::new().await;
    // It answers only when it has read everything.
    let program = guest::program(async |mut stream| {
        let mut read = Vec::new();
        stream.read_to_end(&mut read).await.unwrap();
        stream.write_all(&read).await.unwrap();
    });
    let port = kit.port(program.await, true);
    // Some clients leave out a number that their scheme implies.
    for number in [":5432", ""] {
        let mut stream = kit.connect().await;
        stream
            .write_all(format!("CONNECT {}{number} HTTP/1.1\r\nHost: x\r\n\r\n", port.name()).as_bytes())
            .await
            .unwrap();
        assert!(read_head(&mut stream).await.starts_with("HTTP/1.1 200 "));
        let sent = vec![7; 3 << 20];
        within(stream.write_all(&sent)).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut back = Vec::new();
        within(stream.read_to_end(&mut back)).await.unwrap();
        assert!(back == sent, "{} bytes came back", back.len());
    }
}

#[tokio::test]
async fn a_websocket_speaks_both_ways() {
    let kit = Kit::new().await;
    let program = guest::program(async |stream| {
        let mut socket = tokio_tungstenite::accept_async(stream).await.unwrap();
        while let Some(Ok(message)) = socket.next().await {
            if message.is_text() {
                socket.send(message).await.unwrap();
            }
        }
    });
    let port = kit.port(program.await, false);
    let connect = async |token: Option<String>| {
        let mut request = format!("ws://{}/socket", port.name()).into_client_request().unwrap();
        if let Some(token) = token {
            request.headers_mut().insert("x-space-port-token", token.parse().unwrap());
        }
        tokio_tungstenite::client_async(request, kit.connect().await).await
    };
    within(connect(None)).await.unwrap_err();
    let (mut socket, _) = within(connect(Some(kit.token(port)))).await.unwrap();
    for text in ["one", "two"] {
        within(socket.send(Message::text(text))).await.unwrap();
        assert_eq!(within(socket.next()).await.unwrap().unwrap(), Message::text(text));
    }
}

#[tokio::test]
async fn a_guest_that_changes_the_protocol_unasked_is_not_followed() {
    let kit = Kit::new().await;
    let program = guest::program(async |mut stream| {
        stream
            .write_all(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n")
            .await
            .unwrap();
        drop(stream.read_to_end(&mut Vec::new()).await);
    });
    let port = kit.port(program.await, true);
    let response = kit.get(port, "/", &[]).await;
    assert_eq!(response.status(), 502);
}
