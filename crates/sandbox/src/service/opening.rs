//! The message that has to come first in a stream of requests: what is to be done with the others.

use std::time::Duration;

use tokio::time::timeout;
use tonic::{Status, Streaming};

use super::file_convert::missing;

/// A client that opens a call and says nothing holds a stream, and nothing more, until the deadline.
pub(super) async fn first<T>(requests: &mut Streaming<T>, deadline: Duration) -> Result<T, Status> {
    match timeout(deadline, requests.message()).await {
        Ok(first) => first?.ok_or_else(|| missing("open")),
        Err(_elapsed) => Err(Status::deadline_exceeded("the first message did not come in time")),
    }
}
