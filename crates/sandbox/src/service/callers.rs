//! Which caller may use which service: control all of them, an edge `Ports` and `Attach`.

use tonic::{Request, Status};

use crate::tls::{Caller, caller};

/// An interceptor of the services that are control's.
pub(super) fn control_only(request: Request<()>) -> Result<Request<()>, Status> {
    let certificates = request.peer_certs();
    match certificates.as_deref().and_then(|chain| chain.first()).and_then(caller) {
        Some(Caller::Control) => Ok(request),
        Some(Caller::Edge) => {
            Err(Status::permission_denied("an edge may open tunnels and follow commands, and no more"))
        }
        // The handshake lets nobody else in.
        None => Err(Status::unauthenticated("no certificate of a caller")),
    }
}
