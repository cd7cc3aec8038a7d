//! `space top`: sandboxes as they are now, again and again on a terminal; or the processes of one, once.

mod age;
mod processes;
mod screen;

use std::{io::IsTerminal as _, time::Duration};

use space_api::{
    Page, Timestamp,
    client::{Client, ClientError},
    limits,
    sandboxes::{ListSandboxes, Sandbox},
};
use tokio::time::{sleep, timeout};

use self::{age::age, screen::Screen};
use super::get;
use crate::{
    args::{GlobalArgs, TopArgs},
    error::CliError,
    output,
    session::Interrupts,
};

const PERIOD: Duration = Duration::from_secs(2);
/// For one look at the server.
const DEADLINE: Duration = Duration::from_secs(10);
/// Lines of the screen that are not sandboxes.
const FRAME: u32 = 4;

pub(super) async fn run(client: &Client, global: &GlobalArgs, args: &TopArgs) -> Result<u8, CliError> {
    match args.sandbox {
        Some(sandbox) => processes::run(client, global, sandbox).await,
        None if global.json || !std::io::stdout().is_terminal() => once(client, global).await,
        None => watch(client).await,
    }
}

async fn once(client: &Client, global: &GlobalArgs) -> Result<u8, CliError> {
    let page = look(client, limits::PAGE_MAX).await?;
    if global.json {
        output::json(&page.items)?;
    } else {
        output::line(&render(&page, now()));
    }
    Ok(0)
}

/// Until it is interrupted, which is how it is meant to end. A server that is away for a moment is told, not given up;
/// the first look must succeed.
async fn watch(client: &Client) -> Result<u8, CliError> {
    let mut interrupts = Interrupts::listen()?;
    let mut page = look(client, rows()).await?;
    let screen = Screen::open()?;
    let mut trouble = None;
    loop {
        let told = trouble.take().map(|error: CliError| output::plain(&error.to_string()));
        screen.show(&format!("{}\n\n{}", render(&page, now()), told.unwrap_or_default()))?;
        tokio::select! {
            () = sleep(PERIOD) => {}
            _ = interrupts.next() => return Ok(0),
        }
        tokio::select! {
            seen = look(client, rows()) => match seen {
                Ok(seen) => page = seen,
                Err(error) => trouble = Some(error),
            },
            _ = interrupts.next() => return Ok(0),
        }
    }
}

/// The newest ones.
async fn look(client: &Client, limit: u32) -> Result<Page<Sandbox>, CliError> {
    let query = ListSandboxes { limit: Some(limit), ..ListSandboxes::default() };
    let answer = timeout(DEADLINE, client.sandbox_list(&query)).await;
    Ok(answer.map_err(|_elapsed| ClientError::Deadline { after: DEADLINE })??)
}

/// How many sandboxes the screen has room for.
fn rows() -> u32 {
    screen::height().saturating_sub(FRAME).clamp(1, limits::PAGE_MAX)
}

fn now() -> Timestamp {
    let since = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
    Timestamp::from_unix_milliseconds(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

fn render(page: &Page<Sandbox>, now: Timestamp) -> String {
    let rows: Vec<_> = page.items.iter().map(|sandbox| row(sandbox, now)).collect();
    let mut text = output::table(["ID", "STATE", "CLASS", "TEMPLATE", "AGE"], &rows);
    if page.next_cursor.is_some() {
        text.push_str("\n… and older ones: `space ls` lists all");
    }
    text
}

fn row(sandbox: &Sandbox, now: Timestamp) -> [String; 5] {
    [
        sandbox.id.to_string(),
        get::state(sandbox),
        format!("{}×{}", sandbox.vcpus, sandbox.memory_mib),
        get::template(sandbox),
        age(sandbox.created_at, now),
    ]
}
