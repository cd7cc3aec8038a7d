//! How to reach the worker of a sandbox, remembered: running a command must not wait for the database.
//!
//! An entry is forgotten when this replica changes the sandbox or is told of a change; a while later in any case.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use space_types::{SandboxId, SandboxState};

use super::{App, AppError};
use crate::{grants::Reach, store::sandboxes::Route};

/// For the message that was never delivered.
const REMEMBERED_FOR: Duration = Duration::from_secs(10);
const MOST_ROUTES: usize = 100_000;

#[derive(Debug, Default)]
struct Entries {
    /// Grows with everything forgotten: what was read before must not be remembered after.
    epoch: u64,
    routes: HashMap<SandboxId, (Instant, Route)>,
}

#[derive(Debug, Default)]
pub(crate) struct RouteCache(Mutex<Entries>);

impl RouteCache {
    fn get(&self, id: SandboxId) -> (u64, Option<Route>) {
        let entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = entries.routes.get(&id).filter(|(read_at, _)| read_at.elapsed() < REMEMBERED_FOR);
        (entries.epoch, fresh.map(|(_, route)| route.clone()))
    }

    fn put(&self, epoch: u64, id: SandboxId, read_at: Instant, route: Route) {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.epoch != epoch {
            return;
        }
        if entries.routes.len() >= MOST_ROUTES {
            entries.routes.clear();
        }
        entries.routes.insert(id, (read_at, route));
    }

    pub(crate) fn forget(&self, id: SandboxId) {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        entries.epoch += 1;
        entries.routes.remove(&id);
    }

    pub(crate) fn forget_all(&self) {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        entries.epoch += 1;
        entries.routes.clear();
    }
}

impl App {
    /// The route to a running sandbox. `reach` none: for the holder of an attach token, which names the sandbox.
    pub(crate) async fn route(&self, reach: Option<Reach>, id: SandboxId) -> Result<Route, AppError> {
        let (epoch, remembered) = self.routes.get(id);
        let route = if let Some(route) = remembered {
            route
        } else {
            let read_at = Instant::now();
            let route = self.store.sandbox_route(id).await?.ok_or(AppError::NotFound("sandbox"))?;
            // Other states are on their way to being another one.
            if SandboxState::USABLE.contains(&route.state) {
                self.routes.put(epoch, id, read_at, route.clone());
            }
            route
        };
        if reach.is_some_and(|reach| !reach.sees(route.tenant_id, route.project_id)) {
            return Err(AppError::NotFound("sandbox"));
        }
        if !SandboxState::USABLE.contains(&route.state) {
            return Err(AppError::SandboxNotRunning { state: route.state, reason: route.reason });
        }
        Ok(route)
    }
}
