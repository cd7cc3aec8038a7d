//! Bytes in both directions, after CONNECT or a change of protocol. Each direction ends by itself.

use http::{Request, Response};
use hyper::{
    body::Incoming,
    upgrade::{OnUpgrade, Upgraded},
};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, copy_bidirectional_with_sizes};

use super::Journey;
use crate::{Body, answer, answer::Refusal, upstream::RawBytes};

/// Held for each direction of a connection.
const BUFFER: usize = 16 * 1024;

impl Journey<'_> {
    /// `CONNECT`: the port named in the target is the label's; the number behind the colon says nothing.
    pub(super) async fn connect(&self, mut request: Request<Incoming>) -> Result<Response<Body>, Refusal> {
        let (_, tunnel) = self.reach(&RawBytes).await?;
        let visitor_side = hyper::upgrade::on(&mut request);
        let place = self.visitor.place.clone();
        self.proxy.tasks.spawn("connect", async move {
            let _place = place;
            if let Ok(visitor) = visitor_side.await {
                splice(visitor, tunnel).await;
            }
        });
        Ok(Response::new(answer::empty()))
    }

    pub(super) fn splice_upgraded(&self, visitor_side: OnUpgrade, guest_side: OnUpgrade) {
        let place = self.visitor.place.clone();
        self.proxy.tasks.spawn("upgraded", async move {
            let _place = place;
            if let Ok((visitor, guest)) = futures::try_join!(visitor_side, guest_side) {
                splice(visitor, TokioIo::new(guest)).await;
            }
        });
    }
}

async fn splice(visitor: Upgraded, mut guest: impl AsyncRead + AsyncWrite + Unpin) {
    let mut visitor = TokioIo::new(visitor);
    if let Err(error) = copy_bidirectional_with_sizes(&mut visitor, &mut guest, BUFFER, BUFFER).await {
        tracing::debug!(%error, "a connection of bytes broke");
    }
}
