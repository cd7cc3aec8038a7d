//! Commands of a worker, all of them the same: they print `1`, `2`, … as far as the test lets them, and then exit.

use std::pin::Pin;

use space_node_proto::{
    attach::{FollowRequest, attach_server},
    commands::{CommandEvent, Exit, Output, command_event::Kind},
};
use tokio::sync::{mpsc, watch};
use tokio_stream::{Stream, wrappers::ReceiverStream};
use tonic::{Request, Response, Status};

use super::worker::GENERATION;

/// How far commands are: the numbers that were printed, and whether the exit came behind them.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Progress {
    pub(crate) printed: u64,
    pub(crate) exited: bool,
}

pub(crate) struct Printer(pub(crate) watch::Receiver<Progress>);

#[tonic::async_trait]
impl attach_server::Attach for Printer {
    type FollowStream = Pin<Box<dyn Stream<Item = Result<CommandEvent, Status>> + Send>>;

    async fn follow(&self, call: Request<FollowRequest>) -> Result<Response<Self::FollowStream>, Status> {
        let call = call.into_inner();
        if call.generation != GENERATION {
            return Err(Status::failed_precondition("another generation"));
        }
        let (sender, receiver) = mpsc::channel(1);
        tokio::spawn(print(self.0.clone(), call.after_sequence, sender));
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }
}

async fn print(
    mut progress: watch::Receiver<Progress>,
    after: u64,
    sender: mpsc::Sender<Result<CommandEvent, Status>>,
) {
    for sequence in after + 1.. {
        let exits = |now: &Progress| now.exited && sequence > now.printed;
        let Ok(now) = progress.wait_for(|now| now.printed >= sequence || exits(now)).await.map(|now| *now)
        else {
            return;
        };
        let kind = if exits(&now) {
            Kind::Exit(Exit::default())
        } else {
            Kind::Output(Output { offset: sequence, data: sequence.to_string().into(), ..Output::default() })
        };
        let event = CommandEvent { sequence, kind: Some(kind), ..CommandEvent::default() };
        if sender.send(Ok(event)).await.is_err() || exits(&now) {
            return;
        }
    }
}
