//! `space port forward`: until it is interrupted, which is how it is meant to end.

use futures::future::{join_all, try_join_all};
use space_api::client::Client;

use crate::{
    args::{ForwardArgs, GlobalArgs},
    error::CliError,
    forward::{Forward, Local},
    output,
    session::{self, Interrupts},
};

pub(super) async fn run(client: &Client, global: &GlobalArgs, args: &ForwardArgs) -> Result<u8, CliError> {
    let mut interrupts = Interrupts::listen()?;
    let forwards = tokio::select! {
        opened = open(client, global, args) => opened?,
        _ = interrupts.next() => return Ok(session::INTERRUPTED),
    };
    for forward in &forwards {
        if global.json {
            output::json(&forward.facts())?;
        } else {
            output::line(&forward.describe());
        }
    }
    tokio::select! {
        _ = join_all(forwards.into_iter().map(Forward::run)) => {}
        _ = interrupts.next() => {}
    }
    Ok(0)
}

/// Every port listens here before anything is asked for or said.
async fn open(client: &Client, global: &GlobalArgs, args: &ForwardArgs) -> Result<Vec<Forward>, CliError> {
    let mut here = Vec::with_capacity(args.ports.len());
    for ports in &args.ports {
        here.push(Local::listen(args.sandbox, *ports).await?);
    }
    try_join_all(here.into_iter().map(|local| Forward::open(client, args.sandbox, local, global.json))).await
}
