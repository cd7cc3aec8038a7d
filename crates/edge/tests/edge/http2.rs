//! HTTP/2 by hand: what no library lets a client say.

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::kit::{Kit, Port, guest, within};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

// RFC 9113, 6.
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const CANCEL: u32 = 8;
const ENHANCE_YOUR_CALM: u32 = 11;

struct Frame {
    kind: u8,
    stream: u32,
    payload: Vec<u8>,
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut bytes = length[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

async fn read_frame(stream: &mut TcpStream) -> Option<Frame> {
    let mut head = [0; 9];
    stream.read_exact(&mut head).await.ok()?;
    let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
    let mut payload = vec![0; length];
    stream.read_exact(&mut payload).await.ok()?;
    let number = u32::from_be_bytes(head[5..].try_into().unwrap());
    Some(Frame { kind: head[3], stream: number, payload })
}

/// The fields of a GET, in HPACK's plainest way (RFC 7541): three of the static table, and the authority spelled out.
fn get(port: Port) -> Vec<u8> {
    let name = port.name();
    let mut fields = vec![0x82, 0x86, 0x84, 0x01, u8::try_from(name.len()).unwrap()];
    fields.extend(name.as_bytes());
    fields
}

/// Says all of it after the preface. The code with which the edge ends the connection, and it does end it.
async fn is_sent_away(kit: &Kit, said: Vec<u8>) -> u32 {
    let mut stream = kit.connect().await;
    stream.write_all(PREFACE).await.unwrap();
    stream.write_all(&frame(SETTINGS, 0, 0, &[])).await.unwrap();
    let (mut read, mut write) = stream.into_split();
    // The edge may have hung up before it has heard everything.
    let saying = tokio::spawn(async move {
        drop(write.write_all(&said).await);
        write
    });
    let code = within(async {
        let mut code = None;
        let mut bytes = Vec::new();
        drop(read.read_to_end(&mut bytes).await);
        let mut rest = bytes.as_slice();
        while let Some((head, behind)) = rest.split_first_chunk::<9>() {
            let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
            if head[3] == GOAWAY {
                code = Some(u32::from_be_bytes(behind[4..8].try_into().unwrap()));
            }
            rest = &behind[length..];
        }
        code.expect("a connection that ends without a word")
    });
    let code = code.await;
    drop(within(saying).await.unwrap());
    code
}

#[tokio::test]
async fn thousands_of_streams_that_are_reset_end_their_connection_and_no_other() {
    let kit = Kit::with("address_requests_per_second = 0", false).await;
    let port = kit.port(guest::mirror().await, true);
    let client = kit.client(port).http2_prior_knowledge().build().unwrap();
    assert_eq!(client.get(kit.url(port, "/")).send().await.unwrap().status(), 200);
    let fields = get(port);
    let streams = (0..4000_u32).map(|number| number * 2 + 1);
    let said: Vec<u8> = streams
        .flat_map(|stream| {
            let opened = frame(HEADERS, END_HEADERS | END_STREAM, stream, &fields);
            [opened, frame(RST_STREAM, 0, stream, &CANCEL.to_be_bytes())].concat()
        })
        .collect();
    assert_eq!(is_sent_away(&kit, said).await, ENHANCE_YOUR_CALM);
    assert_eq!(client.get(kit.url(port, "/")).send().await.unwrap().status(), 200, "its neighbour");
    assert_eq!(kit.get(port, "/", &[]).await.status(), 200);
}

#[tokio::test]
async fn a_head_without_an_end_ends_its_connection() {
    let kit = Kit::new().await;
    let port = kit.port(guest::mirror().await, true);
    let mut said = frame(HEADERS, END_STREAM, 1, &get(port));
    // A field called `x` and nothing in it, again and again.
    let more = [0x00, 0x01, b'x', 0x00].repeat(1000);
    said.extend((0..1000).flat_map(|_| frame(CONTINUATION, 0, 1, &more)));
    assert_eq!(is_sent_away(&kit, said).await, ENHANCE_YOUR_CALM);
    assert_eq!(kit.get(port, "/", &[]).await.status(), 200);
}

#[tokio::test]
async fn a_head_that_is_too_large_reaches_no_guest() {
    let kit = Kit::new().await;
    let port = kit.port(guest::mirror().await, true);
    let mut fields = get(port);
    // 100 fields of a name and 1,000 characters.
    for _ in 0..100 {
        fields.extend([0x00, 0x01, b'x', 0x7f, 0xe9, 0x06]);
        fields.extend([b'y'; 1000]);
    }
    let mut stream = kit.connect().await;
    let mut said = [PREFACE.to_vec(), frame(SETTINGS, 0, 0, &[])].concat();
    let mut pieces = fields.chunks(16_000);
    said.extend(frame(HEADERS, END_STREAM, 1, pieces.next().unwrap()));
    let mut left = pieces.len();
    for piece in pieces {
        left -= 1;
        said.extend(frame(CONTINUATION, if left == 0 { END_HEADERS } else { 0 }, 1, piece));
    }
    stream.write_all(&said).await.unwrap();
    let answer = within(async {
        loop {
            let frame = read_frame(&mut stream).await.expect("an answer");
            if frame.stream == 1 {
                return frame;
            }
        }
    });
    let answer = answer.await;
    // 431, which is in no static table, as text or in Huffman's code.
    let has = |text: &[u8]| answer.payload.windows(text.len()).any(|window| window == text);
    assert!(
        answer.kind == HEADERS && (has(b"431") || has(&[0x69, 0x90, 0xff])) || answer.kind == RST_STREAM,
        "{:?}",
        answer.payload
    );
    assert_eq!(kit.worker.opened.load(std::sync::atomic::Ordering::Relaxed), 0);
}
