//! `space events`

use space_api::{
    client::{Client, StreamConfig},
    events::Event,
};

use crate::{
    args::{EventsArgs, GlobalArgs},
    error::CliError,
    output,
    session::{self, Interrupts},
};

/// Follows until it is interrupted.
pub(super) async fn run(client: &Client, global: &GlobalArgs, args: &EventsArgs) -> Result<u8, CliError> {
    let mut stream = client.event_stream(args.sandbox, args.after, StreamConfig::default())?;
    let mut interrupts = Interrupts::listen()?;
    loop {
        let event = tokio::select! {
            event = stream.next() => event?,
            _ = interrupts.next() => return Ok(session::INTERRUPTED),
        };
        if global.json {
            output::json(&event)?;
        } else {
            output::line(&render(&event));
        }
    }
}

fn render(event: &Event) -> String {
    let reason = event.data.reason.map(|reason| format!("  {reason}"));
    let operation = event.data.operation.as_ref().map(|operation| {
        let problem = operation.problem.as_ref().map(|problem| format!(": {problem}"));
        format!("  {} {}{}", operation.kind.code(), operation.status.code(), problem.unwrap_or_default())
    });
    let extra = output::plain(&(reason.unwrap_or_default() + &operation.unwrap_or_default()));
    format!("{}  {}  {:<18}{extra}", event.at, event.sandbox_id, event.kind.code()).trim_end().to_owned()
}
