//! Event streams as the client parses them. The first byte says how the others are cut up.
//!
//! - However they are cut up and whatever ends their lines, the same events come.
//! - Names and ids have no line in them and data no carriage return; an id has no NUL.
//! - An event that is written again is parsed again, and so is a command's event.

use space_api::sse::{CommandEvent, Frame, Parser, Position};

pub(crate) fn run(bytes: &[u8]) {
    let Some((cut, bytes)) = bytes.split_first() else { return };
    let whole = parse(bytes, bytes.len().max(1));
    assert_eq!(whole, parse(bytes, usize::from(*cut).max(1)), "cutting the bytes changes what they say");
    assert_eq!(whole, parse(&with_line_feeds(bytes), 16), "line ends differ in more than their bytes");
    for frame in &whole {
        let Frame::Event { name, data, id } = frame else { continue };
        is_clean(name, data, id.as_deref());
        comes_back(name, data, id.as_deref());
        if let Some(Ok(event)) = CommandEvent::parse(name, data) {
            is_the_same_event(&event);
        }
        if let Some(Ok(position)) = id.as_deref().map(str::parse::<Position>) {
            assert_eq!(position.to_string().parse(), Ok(position));
        }
    }
}

/// The same lines, each ended by a line feed.
fn with_line_feeds(bytes: &[u8]) -> Vec<u8> {
    let mut lines = Vec::new();
    let mut last = 0;
    for &byte in bytes {
        match byte {
            b'\n' if last == b'\r' => {}
            b'\r' => lines.push(b'\n'),
            byte => lines.push(byte),
        }
        last = byte;
    }
    lines
}

fn parse(bytes: &[u8], piece_bytes: usize) -> Vec<Frame> {
    let (mut parser, mut frames) = (Parser::default(), Vec::new());
    for piece in bytes.chunks(piece_bytes) {
        parser.push(piece, &mut frames).unwrap_or_else(|error| panic!("{} bytes: {error}", bytes.len()));
    }
    frames
}

fn is_clean(name: &str, data: &str, id: Option<&str>) {
    assert!(!name.is_empty() && !name.contains(['\n', '\r']), "a name of {name:?}");
    assert!(!data.contains('\r'), "data of {data:?}");
    assert!(!id.unwrap_or_default().contains(['\n', '\r', '\0']), "an id of {id:?}");
}

fn comes_back(name: &str, data: &str, id: Option<&str>) {
    let id_line = id.map_or(String::new(), |id| format!("id: {id}\n"));
    let lines = data.replace('\n', "\ndata: ");
    let text = format!(": first\n{id_line}event: {name}\ndata: {lines}\n\n");
    let event = Frame::Event { name: name.to_owned(), data: data.to_owned(), id: id.map(ToOwned::to_owned) };
    assert_eq!(parse(text.as_bytes(), 3), [Frame::Comment, event]);
}

fn is_the_same_event(event: &CommandEvent) {
    let data = event.data().unwrap_or_else(|error| panic!("{event:?}: {error}"));
    assert!(!data.contains('\n'), "a line break within {data}");
    let again = CommandEvent::parse(event.name(), &data);
    assert!(matches!(&again, Some(Ok(again)) if again == event), "{again:?} for {event:?}");
}
