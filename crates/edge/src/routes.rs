//! Where sandboxes are and what of them may be reached, as control says: asked once for many requests, and kept for a while.
//!
//! | what is known | for how long | then |
//! |---|---|---|
//! | a route | 5 s | asked for again; used for up to 60 s while control can't be asked |
//! | that there is no such sandbox | 1 s | asked for again |
//! | that control can't be asked | 1 s | asked again |
//!
//! Strangers can name as many sandboxes as they like, and each costs a question: few are asked at the same time for
//! callers who have shown nothing, more for those with a token of ours, and no more than that together.
//!
//! A slot is locked while control is asked, so that the others who want to know wait for that one answer.

mod generations;
mod route;

use std::{
    hash::Hash,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use space_runtime::telemetry::chain;
use space_types::{PortHost, SandboxId};
use tokio::{
    sync::Semaphore,
    time::{Instant, timeout},
};

use crate::control::{ControlError, ControlLink};
use generations::Generations;
pub(crate) use route::{PortRoute, SandboxRoute, Target};

const FRESH: Duration = Duration::from_secs(5);
const STALE: Duration = Duration::from_mins(1);
const BRIEF: Duration = Duration::from_secs(1);
const MOST: usize = 100_000;
const QUESTIONS_OF_STRANGERS: usize = 8;
const QUESTIONS_OF_BEARERS: usize = 32;
/// How long a question waits for those before it.
const CROWD: Duration = Duration::from_secs(2);

/// Who wants to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asks {
    Stranger,
    /// With a token that control signed for the very thing that is asked for.
    Bearer,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RouteError {
    #[error("there is no such sandbox")]
    NotFound,
    #[error("control can't be asked")]
    Unavailable,
}

/// What control can be asked for.
pub(crate) trait Destination: Copy + Hash + Eq + Send + Sync {
    type Route: Send + Sync;

    /// `None`: there is no such sandbox.
    fn ask(
        self,
        control: &ControlLink,
    ) -> impl Future<Output = Result<Option<Self::Route>, ControlError>> + Send;
}

impl Destination for PortHost {
    type Route = PortRoute;

    async fn ask(self, control: &ControlLink) -> Result<Option<PortRoute>, ControlError> {
        Ok(control.resolve_port(self).await?.map(PortRoute::parse).transpose()?)
    }
}

impl Destination for SandboxId {
    type Route = SandboxRoute;

    async fn ask(self, control: &ControlLink) -> Result<Option<SandboxRoute>, ControlError> {
        Ok(control.resolve_sandbox(self).await?.map(SandboxRoute::parse).transpose()?)
    }
}

struct Slot<R> {
    /// The last answer, and when control gave it.
    known: Option<(Instant, Option<Arc<R>>)>,
    failed_at: Option<Instant>,
}

impl<R> Default for Slot<R> {
    fn default() -> Self {
        Self { known: None, failed_at: None }
    }
}

type Shared<R> = Arc<tokio::sync::Mutex<Slot<R>>>;

pub(crate) struct Routes<D: Destination> {
    control: ControlLink,
    slots: Mutex<Generations<D, Shared<D::Route>>>,
    of_strangers: Semaphore,
    of_bearers: Semaphore,
}

impl<D: Destination> Routes<D> {
    pub(crate) fn new(control: ControlLink) -> Self {
        Self {
            control,
            slots: Mutex::new(Generations::new(MOST)),
            of_strangers: Semaphore::new(QUESTIONS_OF_STRANGERS),
            of_bearers: Semaphore::new(QUESTIONS_OF_BEARERS),
        }
    }

    /// Cancel safe. Ends by control's deadline, and that of those who asked before.
    pub(crate) async fn find(&self, to: D, asks: Asks) -> Result<Arc<D::Route>, RouteError> {
        let slot = self.slot(to);
        let mut slot = slot.lock().await;
        let now = Instant::now();
        if let Some(answer) = slot.answer(now) {
            metrics::counter!("edge_route_lookups_total", "from" => "cache").increment(1);
            return answer;
        }
        let Ok(_asking) = timeout(CROWD, self.questions(asks).acquire()).await else {
            metrics::counter!("edge_route_lookups_total", "from" => "crowd").increment(1);
            return Err(RouteError::Unavailable);
        };
        metrics::counter!("edge_route_lookups_total", "from" => "control").increment(1);
        match to.ask(&self.control).await {
            Ok(route) => {
                let route = route.map(Arc::new);
                slot.failed_at = None;
                // As old as the question; good for who asked, however long it took.
                slot.known = Some((now, route.clone()));
                return route.ok_or(RouteError::NotFound);
            }
            Err(error) => {
                tracing::warn!(error = chain(&error), "cannot ask control for a route");
                slot.failed_at = Some(Instant::now());
            }
        }
        slot.answer(Instant::now()).unwrap_or(Err(RouteError::Unavailable))
    }

    /// After `route` turned out to lead nowhere: the next one who asks asks control.
    pub(crate) async fn forget(&self, to: D, route: &Arc<D::Route>) {
        let slot = self.slot(to);
        let mut slot = slot.lock().await;
        // Another one may have asked in the meantime.
        if slot
            .known
            .as_ref()
            .is_some_and(|(_, known)| known.as_ref().is_some_and(|known| Arc::ptr_eq(known, route)))
        {
            slot.known = None;
        }
    }

    fn questions(&self, asks: Asks) -> &Semaphore {
        match asks {
            Asks::Stranger => &self.of_strangers,
            Asks::Bearer => &self.of_bearers,
        }
    }

    fn slot(&self, to: D) -> Shared<D::Route> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner).get_or_default(to)
    }
}

impl<R> Slot<R> {
    /// What can be answered without asking control.
    fn answer(&self, now: Instant) -> Option<Result<Arc<R>, RouteError>> {
        let failed = self.failed_at.is_some_and(|at| now.duration_since(at) < BRIEF);
        let age = |at: Instant| now.duration_since(at);
        match &self.known {
            Some((at, Some(route))) if age(*at) < FRESH || (failed && age(*at) < STALE) => {
                Some(Ok(Arc::clone(route)))
            }
            Some((at, None)) if age(*at) < BRIEF => Some(Err(RouteError::NotFound)),
            Some(_) | None => failed.then_some(Err(RouteError::Unavailable)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route() -> Arc<SandboxRoute> {
        Arc::new(SandboxRoute { state: "paused".to_owned(), target: None })
    }

    #[test]
    fn a_route_is_used_as_long_as_the_table_says() {
        let (begin, seconds) = (Instant::now(), |count: u64| Duration::from_secs(count));
        let mut slot = Slot { known: Some((begin, Some(route()))), failed_at: None };
        assert!(slot.answer(begin + seconds(4)).unwrap().is_ok());
        assert!(slot.answer(begin + seconds(5)).is_none(), "control is asked");
        slot.failed_at = Some(begin + seconds(58));
        assert!(slot.answer(begin + seconds(58)).unwrap().is_ok(), "control is away");
        assert!(slot.answer(begin + seconds(59)).is_none(), "and asked again");
        slot.failed_at = Some(begin + seconds(60));
        assert_eq!(slot.answer(begin + seconds(60)).unwrap().unwrap_err(), RouteError::Unavailable);
    }

    #[test]
    fn nothing_is_known_briefly() {
        let begin = Instant::now();
        let slot = Slot::<SandboxRoute> { known: Some((begin, None)), failed_at: None };
        assert_eq!(slot.answer(begin).unwrap().unwrap_err(), RouteError::NotFound);
        assert!(slot.answer(begin + BRIEF).is_none());
        assert!(Slot::<SandboxRoute>::default().answer(begin).is_none());
    }
}
