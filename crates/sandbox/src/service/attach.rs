//! What commands have to say, for edges: they may read, and start what was made to be read, and no more.

use std::sync::Arc;

use futures::TryStreamExt as _;
use space_guest_proto::{message::AttachCommandRequest as GuestAttach, validate};
use space_node_proto::attach::{FollowRequest, attach_server::Attach};
use tonic::{Request, Response, Status};

use super::{Events, status};
use crate::{guest::CallError, sandboxes::Sandboxes};

pub(super) struct AttachService {
    pub(super) sandboxes: Arc<Sandboxes>,
}

#[tonic::async_trait]
impl Attach for AttachService {
    type FollowStream = Events;

    async fn follow(&self, request: Request<FollowRequest>) -> Result<Response<Events>, Status> {
        let FollowRequest { sandbox_id, generation, command_id, after_sequence } = request.into_inner();
        let guest = self.sandboxes.find(&sandbox_id, generation)?;
        validate::command_id(&command_id).map_err(|error| status::invalid(&error))?;
        // The command's spooler fills in the credit.
        let asked = GuestAttach { command_id, after_sequence, credit: 0, create: None };
        let stream = guest.attach(asked).await?;
        Ok(Response::new(stream.map_err(Status::from as fn(CallError) -> Status)))
    }
}
