//! `space` alone: what to do next, by what the server says. It is a help and no check, so a server that is not there
//! is no failure; and it must be quick, so the server gets one request and two seconds.

use std::time::Duration;

use serde_json::{Value, json};
use space_api::{
    client::{Client, ClientError},
    sandboxes::{ListSandboxes, Sandbox},
};
use space_types::SandboxState;

use super::get;
use crate::{args::GlobalArgs, connect::connect_patiently, error::CliError, output};

const DEADLINE: Duration = Duration::from_secs(2);
/// Sandboxes that are shown.
const SHOWN: u32 = 3;

/// What was found.
enum Situation {
    /// Nobody answered.
    Away(String),
    /// Somebody did, and would not tell.
    Refused(CliError),
    Sandboxes(Vec<Sandbox>),
}

/// A thing to do: what to type, and what it does.
type Step = (String, &'static str);

pub(super) async fn run(global: &GlobalArgs) -> Result<u8, CliError> {
    let client = connect_patiently(global, Duration::ZERO)?;
    let (situation, url) = (look(&client).await, client.url().to_string());
    if global.json {
        output::json(&facts(&situation, &url))?;
    } else {
        output::line(&render(&situation, &url));
    }
    Ok(0)
}

async fn look(client: &Client) -> Situation {
    let query = ListSandboxes { limit: Some(SHOWN), ..ListSandboxes::default() };
    let answer = tokio::time::timeout(DEADLINE, client.sandbox_list(&query)).await;
    match answer {
        Ok(Ok(page)) => Situation::Sandboxes(page.items),
        Ok(Err(error @ ClientError::Unreachable { .. })) => {
            Situation::Away(CliError::from(error).to_string())
        }
        Ok(Err(error)) => Situation::Refused(error.into()),
        Err(_) => Situation::Away(format!("no answer from {} within {} s", client.url(), DEADLINE.as_secs())),
    }
}

impl Situation {
    fn steps(&self) -> Vec<Step> {
        let fixed = |steps: &[(&str, &'static str)]| -> Vec<Step> {
            steps.iter().map(|(line, what)| ((*line).to_owned(), *what)).collect()
        };
        match self {
            Self::Away(_) => fixed(&[
                ("sudo space up", "run a server on this machine"),
                ("space doctor", "tell whether this machine can"),
                ("export SPACE_URL=… SPACE_API_KEY=…", "use a server elsewhere"),
            ]),
            Self::Refused(_) => fixed(&[
                ("export SPACE_API_KEY=…", "use another key"),
                ("export SPACE_URL=…", "use another server"),
            ]),
            Self::Sandboxes(sandboxes) => {
                let running = sandboxes.iter().find(|sandbox| sandbox.state == SandboxState::Running);
                running.map_or_else(
                    || {
                        fixed(&[
                            ("space run -- uname -a", "run one command in a sandbox of its own"),
                            ("space create", "make a sandbox that stays"),
                            ("space shell", "open a shell in a new one"),
                        ])
                    },
                    |Sandbox { id, .. }| {
                        vec![
                            (format!("space exec {id} -- uname -a"), "run a command in it"),
                            (format!("space shell {id}"), "open a shell in it"),
                            (format!("space cp FILE {id}:"), "copy a file into it"),
                        ]
                    },
                )
            }
        }
    }
}

/// At most twelve lines.
fn render(situation: &Situation, url: &str) -> String {
    let mut lines = match situation {
        Situation::Away(why) => vec![output::plain(why)],
        Situation::Refused(error) => {
            let mut lines = vec![format!("{url} answers, but: {}", output::plain(&error.to_string()))];
            lines.extend(error.hint().map(|hint| format!("  hint: {hint}")));
            lines
        }
        Situation::Sandboxes(sandboxes) if sandboxes.is_empty() => {
            vec![format!("{url} answers; there is no sandbox yet")]
        }
        Situation::Sandboxes(sandboxes) => {
            let rows: Vec<_> = sandboxes.iter().map(row).collect();
            vec![output::table(["NEWEST", "STATE", "TEMPLATE", "CREATED"], &rows)]
        }
    };
    lines.push(String::new());
    let everything = ("space --help".to_owned(), "everything else");
    let steps = [situation.steps(), vec![everything]].concat();
    let width = steps.iter().map(|(line, _)| line.chars().count()).max().unwrap_or(0);
    lines.extend(steps.iter().map(|(line, what)| format!("  {line:<width$}  {what}")));
    lines.join("\n")
}

fn row(sandbox: &Sandbox) -> [String; 4] {
    [sandbox.id.to_string(), get::state(sandbox), get::template(sandbox), sandbox.created_at.to_string()]
}

fn facts(situation: &Situation, url: &str) -> Value {
    let (server, error, sandboxes) = match situation {
        Situation::Away(why) => ("away", json!({ "detail": why }), None),
        Situation::Refused(error) => ("refused", error.to_json(), None),
        Situation::Sandboxes(sandboxes) => ("reachable", Value::Null, Some(sandboxes)),
    };
    let next: Vec<_> = situation.steps().into_iter().map(|(line, _)| line).collect();
    json!({ "url": url, "server": server, "error": error, "sandboxes": sandboxes, "next": next })
}
