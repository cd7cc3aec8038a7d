//! Events as the bytes of a `text/event-stream`.

use std::{pin::pin, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use futures::{Stream, StreamExt as _, stream};
use space_api::{
    limits,
    sse::{CommandEvent, Output},
};
use tokio::time::timeout;

use crate::Positioned;

const HEARTBEAT: Bytes = Bytes::from_static(b": heartbeat\n\n");
/// Of an event's fields, its JSON and the numbers in both: what is reserved beside the data.
const FRAME_BYTES: usize = 192;

/// The body of an answer: each event as it comes, and a comment when there was none for a while.
pub fn body(events: impl Stream<Item = Positioned> + Send) -> impl Stream<Item = Bytes> + Send {
    let silence = Duration::from_secs(limits::HEARTBEAT_SECONDS);
    stream::unfold(Box::pin(events), move |mut events| async move {
        let bytes = match timeout(silence, pin!(events.next())).await {
            Ok(event) => frame(&event?),
            Err(_elapsed) => HEARTBEAT,
        };
        Some((bytes, events))
    })
}

/// One event.
pub fn frame(Positioned { position, event }: &Positioned) -> Bytes {
    let output = match event {
        CommandEvent::Stdout(output) | CommandEvent::Stderr(output) => Some(output),
        CommandEvent::Command(_)
        | CommandEvent::Started(_)
        | CommandEvent::Exit(_)
        | CommandEvent::Gap(_)
        | CommandEvent::Error(_) => None,
    };
    let room = output.map_or(0, |output| output.data.len().div_ceil(3) * 4);
    let mut text = String::with_capacity(FRAME_BYTES + room);
    if let Some(position) = position {
        text.extend(["id: ", &position.to_string(), "\n"]);
    }
    text.extend(["event: ", event.name(), "\ndata: "]);
    match output {
        // Nearly all bytes of nearly all streams: written once, in place.
        Some(output) => push_output(&mut text, output),
        None => text.push_str(&event.data().unwrap_or_default()),
    }
    text.push_str("\n\n");
    Bytes::from(text)
}

fn push_output(text: &mut String, output: &Output) {
    text.extend(["{\"offset\":", &output.offset.to_string(), ",\"data\":\""]);
    STANDARD.encode_string(&output.data.0, text);
    text.push_str("\"}");
}

#[cfg(test)]
mod tests {
    use space_api::{
        commands::Exit,
        sse::{Frame, Parser, Position},
    };

    use super::*;

    fn output(length: u8) -> Positioned {
        let output = Output { offset: 7, data: (0..length).collect::<Vec<u8>>().into() };
        let position = Some(Position { generation: 3, sequence: u64::MAX });
        Positioned { position, event: CommandEvent::Stdout(output) }
    }

    #[test]
    fn what_is_written_is_what_the_contract_reads() {
        let exit = CommandEvent::Exit(Exit { code: Some(3), ..Exit::default() });
        let events = [output(0), output(1), output(255), Positioned { position: None, event: exit }];
        for sent in events {
            let mut frames = Vec::new();
            Parser::default().push(&frame(&sent), &mut frames).unwrap();
            let [Frame::Event { name, data, id }] = frames.as_slice() else { panic!("{frames:?}") };
            assert_eq!(*data, sent.event.data().unwrap(), "as serde has it");
            assert_eq!(CommandEvent::parse(name, data).unwrap().unwrap(), sent.event);
            assert_eq!(*id, sent.position.map(|position| position.to_string()));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn silence_is_told_by_a_comment_and_the_end_is_the_end() {
        let events = stream::once(async { output(1) }).chain(stream::once(async {
            tokio::time::sleep(Duration::from_secs(2 * limits::HEARTBEAT_SECONDS + 1)).await;
            output(2)
        }));
        let sent: Vec<Bytes> = body(events).collect().await;
        assert_eq!(sent, [frame(&output(1)), HEARTBEAT, HEARTBEAT, frame(&output(2))]);
    }
}
