//! How many tunnels there may be: to one port, to the sandboxes of one tenant, and together. Each may hold a window of
//! what its visitor does not read, so their number bounds the edge's memory, and a tenant's share of it.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use space_types::{PortHost, TenantId};
use tokio::{
    sync::{AcquireError, OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

use super::Place;
use crate::{EdgeCode, answer::Refusal, config::Limits};

/// One tunnel's places. Held while it is open.
#[derive(Debug)]
pub(crate) struct Taken(
    #[expect(dead_code, reason = "held, not read")] OwnedSemaphorePermit,
    #[expect(dead_code, reason = "held, not read")] OwnedSemaphorePermit,
    #[expect(dead_code, reason = "held, not read")] OwnedSemaphorePermit,
);

pub(super) struct Places {
    of_port: Shares<PortHost>,
    of_tenant: Shares<TenantId>,
    all: Arc<Semaphore>,
}

impl Places {
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            of_port: Shares::new(limits.tunnels_per_port),
            of_tenant: Shares::new(limits.tunnels_per_tenant),
            all: Arc::new(Semaphore::new(limits.tunnels)),
        }
    }

    /// Who comes in a crowd waits for those before, for so long.
    pub(super) async fn take(&self, place: &Place, patience: Duration) -> Result<Taken, Refusal> {
        let taking = async {
            let port = self.of_port.share(place.host).acquire_owned().await?;
            let tenant = self.of_tenant.share(place.target.tenant).acquire_owned().await?;
            let all = Arc::clone(&self.all).acquire_owned().await?;
            Ok::<_, AcquireError>(Taken(port, tenant, all))
        };
        if let Ok(Ok(taken)) = timeout(patience, taking).await {
            return Ok(taken);
        }
        let detail = "This port, its owner's sandboxes or this edge has as many connections as it may have.";
        Err(Refusal::new(EdgeCode::TooManyConnections, detail))
    }
}

/// A semaphore for each key that is in use.
struct Shares<K> {
    most: usize,
    by_key: Mutex<HashMap<K, Arc<Semaphore>>>,
}

impl<K: Hash + Eq> Shares<K> {
    fn new(most: usize) -> Self {
        Self { most, by_key: Mutex::default() }
    }

    fn share(&self, key: K) -> Arc<Semaphore> {
        let mut by_key = self.by_key.lock().unwrap_or_else(PoisonError::into_inner);
        if !by_key.contains_key(&key) {
            // Those of which nothing is taken are held by nobody else.
            by_key.retain(|_, share| Arc::strong_count(share) > 1);
        }
        Arc::clone(by_key.entry(key).or_insert_with(|| Arc::new(Semaphore::new(self.most))))
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU16;

    use space_types::{NodeId, SandboxId};

    use super::*;
    use crate::routes::Target;

    fn place(tenant: TenantId) -> Place {
        let target = Target { tenant, node: NodeId::new(), address: String::new(), generation: 1 };
        Place { host: PortHost { port: NonZeroU16::MIN, sandbox_id: SandboxId::new() }, target }
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_takes_more_than_his_share() {
        let limits = Limits { tunnels_per_port: 1, tunnels_per_tenant: 2, tunnels: 3, ..Limits::default() };
        let places = Places::new(&limits);
        let take = async |place: &Place| places.take(place, Duration::from_secs(1)).await;
        let (one, two) = (TenantId::new(), TenantId::new());
        let port = place(one);
        let first = take(&port).await.unwrap();
        assert_eq!(take(&port).await.unwrap_err().code, EdgeCode::TooManyConnections, "the port is full");
        let _second = take(&place(one)).await.unwrap();
        assert!(take(&place(one)).await.is_err(), "the tenant has all of its own");
        let _third = take(&place(two)).await.unwrap();
        assert!(take(&place(two)).await.is_err(), "the edge is full");
        drop(first);
        take(&port).await.unwrap();
    }
}
