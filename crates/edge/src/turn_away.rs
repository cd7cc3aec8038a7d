//! What a visitor gets for whom there is no place: the reason, in plain HTTP, and an end that lets it be read.

use std::{io, sync::Arc, time::Duration};

use space_runtime::tasks::Tasks;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    sync::Semaphore,
    time::timeout,
};

use crate::answer::Refusal;

/// For an answer to be taken.
const PATIENCE: Duration = Duration::from_secs(1);
/// Visitors at once who get an answer; with more than that, the others find their connections closed.
const ANSWERED: usize = 256;
/// After which there may be a place.
const COME_AGAIN: Duration = Duration::from_secs(5);

pub(crate) struct TurnAway {
    /// A handshake would cost more than a visitor too many may.
    tls: bool,
    places: Arc<Semaphore>,
    tasks: Tasks,
}

impl TurnAway {
    pub(crate) fn new(tls: bool, tasks: &Tasks) -> Self {
        Self { tls, places: Arc::new(Semaphore::new(ANSWERED)), tasks: tasks.clone() }
    }

    /// Returns at once.
    pub(crate) fn with(&self, refusal: Refusal, stream: TcpStream) {
        metrics::counter!("edge_requests_total", "outcome" => refusal.code.code()).increment(1);
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else { return };
        if self.tls {
            return;
        }
        let text = refusal.retry_after(COME_AGAIN).into_bytes();
        self.tasks.spawn_cancellable("turned away", async move {
            let _place = place;
            drop(timeout(PATIENCE, answer(stream, &text)).await);
        });
    }
}

/// Reads what the visitor says as well: closing with something unread would take the answer back.
async fn answer(mut stream: TcpStream, text: &[u8]) -> io::Result<()> {
    stream.write_all(text).await?;
    stream.shutdown().await?;
    while stream.read(&mut [0; 1024]).await? > 0 {}
    Ok(())
}
