//! The spoolers of a guest: for each command that was started here, the one subscription that feeds its spool.
//!
//! ```text
//!               accepted              exit, or refused for good
//!   attach ──▶ subscribed ──────────────────────────────────────▶ over: readers have what there is
//!                │   ▲
//!   no room, or  │   │ readers came closer, or a subscription     a lost connection subscribes anew
//!   displaced    ▼   │ became free
//!               parked
//! ```
//! A spooler that may take no more leaves: a subscription without credit would occupy one of the connection's calls and
//! keep the guest from forgetting a command that has exited. It comes back behind the last event in its spool, so
//! nothing is lost or doubled; what the guest's ring no longer holds by then arrives as a gap. The frames of a
//! subscription that was left are dropped until the guest has noticed.

use std::collections::{HashMap, HashSet};

use space_guest_proto::{
    HostFrame, Request, limits as guest_limits,
    message::{AttachCommandReply, AttachCommandRequest, CommandSpec, RefusalCode},
};
use space_node_proto::commands::{CommandEvent, command_event::Kind};
use std::sync::Arc;
use tokio::sync::oneshot;
use tracing::{error, info};

use super::{
    Fate,
    check::{self, Broken},
    client::{CallError, Opened},
    link::{Link, QueueError},
};
use crate::{
    limits,
    spool::{Appended, Shelf, Spool},
};

/// Room for one piece of output, below which a subscription can stall.
const PIECE: u64 = guest_limits::DATA_BYTES as u64;

/// A reader that waits for the guest to take its command.
#[derive(Debug)]
struct Waiting {
    after: u64,
    opened: oneshot::Sender<Result<Opened, CallError>>,
}

#[derive(Debug)]
struct Spooler {
    spool: Arc<Spool>,
    /// The specification to create the command with, until the guest has it.
    create: Option<CommandSpec>,
    /// The guest has the command.
    accepted: bool,
    waiting: Vec<Waiting>,
    subscription: Option<u32>,
    /// The guest has taken the subscription: credit and leave are without effect before.
    streaming: bool,
    /// What the guest may still send on the subscription.
    credit: u64,
    /// Grows with each event in the sandbox: when this one had its last.
    last_event: u64,
}

#[derive(Debug)]
pub(super) struct Spoolers {
    shelf: Shelf,
    open: HashMap<String, Spooler>,
    subscriptions: HashMap<u32, String>,
    /// Subscriptions that were left, with the frames that came since.
    left: HashMap<u32, u64>,
    /// With events that are not committed.
    dirty: HashSet<String>,
    events: u64,
    /// Some are parked only because all subscriptions are in use.
    displaced: bool,
}

impl Spoolers {
    pub(super) fn new(shelf: Shelf) -> Self {
        Self {
            shelf,
            open: HashMap::new(),
            subscriptions: HashMap::new(),
            left: HashMap::new(),
            dirty: HashSet::new(),
            events: 0,
            displaced: false,
        }
    }

    /// Takes up what an earlier worker spooled. The guest is asked for more once it has said what it knows.
    pub(super) async fn recover(&mut self) {
        let shelf = self.shelf.clone();
        let recovered = tokio::task::spawn_blocking(move || shelf.recover()).await;
        let spools = recovered.unwrap_or_else(|error| {
            error!(%error, "spools were not taken up");
            HashMap::new()
        });
        for (command_id, spool) in spools {
            self.open.insert(command_id, Spooler { accepted: true, ..Spooler::new(spool, None) });
        }
    }

    /// A new reader, who hears once the guest has the command.
    pub(super) fn attach(
        &mut self,
        link: &mut Link,
        request: AttachCommandRequest,
        opened: oneshot::Sender<Result<Opened, CallError>>,
    ) {
        let AttachCommandRequest { command_id, after_sequence, create, .. } = request;
        if self.readers() >= limits::READERS {
            return answer(opened, Err(CallError::TooMany));
        }
        if !self.open.contains_key(&command_id) {
            if self.open.len() >= limits::SPOOLS && !self.evict_one() {
                return answer(opened, Err(CallError::TooMany));
            }
            let spooler = Spooler::new(self.shelf.spool(&command_id), create);
            self.open.insert(command_id.clone(), spooler);
        } else if create.is_some() {
            // Whether it is the same specification is the guest's to say.
            return answer(opened, Ok(Opened::Exists));
        }
        let Some(spooler) = self.open.get_mut(&command_id) else { return };
        let waiting = Waiting { after: after_sequence, opened };
        if spooler.accepted && !spooler.may_be_asked_again() {
            spooler.open(waiting);
        } else {
            spooler.spool.revive();
            spooler.accepted = false;
            spooler.waiting.push(waiting);
        }
        self.feed(link, &command_id);
    }

    /// A new connection knows no subscription of the old one.
    pub(super) fn resume(&mut self, link: &mut Link) {
        self.commit(None);
        self.subscriptions.clear();
        self.left.clear();
        let mut ids = Vec::new();
        self.open.retain(|_command_id, spooler| {
            spooler.waiting.retain(|waiting| !waiting.opened.is_closed());
            // Nobody waits any more for a command that may never have been made.
            spooler.accepted || !spooler.waiting.is_empty()
        });
        for (command_id, spooler) in &mut self.open {
            if spooler.subscription.take().is_some() {
                ids.push(command_id.clone());
            }
        }
        for command_id in ids {
            self.feed(link, &command_id);
        }
    }

    /// What the guest knows of, with whether it may still write: the others' spools go, and the unfinished go on.
    pub(super) fn reconcile(&mut self, link: &mut Link, known: &HashMap<String, bool>) {
        self.open.retain(|command_id, spooler| {
            let gone = !known.contains_key(command_id) && spooler.subscription.is_none() && spooler.is_idle();
            if gone {
                info!(command_id, "the guest has forgotten a command, and its spool goes");
                spooler.spool.clear();
            }
            !gone
        });
        for (command_id, running) in known {
            if *running && !self.open.contains_key(command_id) && self.open.len() < limits::SPOOLS {
                let spooler = Spooler::new(self.shelf.spool(command_id), None);
                self.open.insert(command_id.clone(), Spooler { accepted: true, ..spooler });
            }
            self.feed(link, command_id);
        }
    }

    /// Asks for more where readers have made room.
    pub(super) fn tend(&mut self, link: &mut Link) {
        let ids: Vec<String> = self.open.keys().cloned().collect();
        for command_id in ids {
            self.feed(link, &command_id);
        }
    }

    /// The guest took a subscription.
    pub(super) fn accepted(&mut self, id: u32, reply: &AttachCommandReply) -> Result<(), Broken> {
        if let Some(command_id) = self.subscriptions.get(&id)
            && let Some(spooler) = self.open.get_mut(command_id)
        {
            check::about(command_id, reply.command.as_ref())?;
            spooler.accepted = true;
            spooler.streaming = true;
            spooler.create = None;
            for waiting in std::mem::take(&mut spooler.waiting) {
                spooler.open(waiting);
            }
        }
        Ok(())
    }

    /// The guest refused one.
    pub(super) fn refused(&mut self, id: u32, error: &CallError) {
        self.left.remove(&id);
        let Some(command_id) = self.subscriptions.remove(&id) else { return };
        let Some(spooler) = self.open.get_mut(&command_id) else { return };
        spooler.subscription = None;
        for waiting in std::mem::take(&mut spooler.waiting) {
            answer(waiting.opened, Err(error.clone()));
        }
        if spooler.spool.last_sequence() == 0 && spooler.spool.readers() == 0 {
            self.open.remove(&command_id);
        } else {
            spooler.accepted = true;
            spooler.spool.fail(error.clone());
        }
    }

    /// The guest ended one.
    pub(super) fn ended(&mut self, link: &mut Link, id: u32) {
        self.left.remove(&id);
        let command_id = self.subscriptions.remove(&id);
        if let Some(spooler) = command_id.and_then(|command_id| self.open.get_mut(&command_id)) {
            spooler.subscription = None;
        }
        if std::mem::take(&mut self.displaced) {
            self.tend(link);
        }
    }

    /// An event for the spool that subscribed under `id`. It is written, and its readers are woken, with the batch.
    pub(super) fn event(&mut self, link: &mut Link, id: u32, event: &CommandEvent) -> Result<(), Broken> {
        if let Some(frames) = self.left.get_mut(&id) {
            *frames += 1;
            return if *frames > limits::LATE_FRAMES { Err(Broken::Late) } else { Ok(()) };
        }
        let Some(command_id) = self.subscriptions.get(&id).cloned() else { return Ok(()) };
        let Some(spooler) = self.open.get_mut(&command_id) else { return Ok(()) };
        self.events += 1;
        spooler.last_event = self.events;
        if let Some(Kind::Output(piece)) = &event.kind {
            spooler.credit = spooler.credit.saturating_sub(piece.data.len() as u64);
        }
        match spooler.spool.append(event)? {
            Appended::Full => self.park(link, &command_id),
            Appended::Taken { exit } => {
                if exit {
                    // Its end follows by itself.
                    spooler.subscription = None;
                    self.subscriptions.remove(&id);
                    self.left.insert(id, 0);
                }
                self.dirty.insert(command_id);
            }
        }
        Ok(())
    }

    /// Writes what has arrived, wakes its readers and gives credit for more.
    pub(super) fn commit(&mut self, mut link: Option<&mut Link>) {
        if self.dirty.is_empty() {
            return;
        }
        let dirty: Vec<String> = self.dirty.drain().collect();
        for command_id in &dirty {
            if let Some(spooler) = self.open.get(command_id) {
                spooler.spool.commit();
            }
        }
        if self.shelf.is_over_budget() {
            while self.shelf.is_over_budget() && self.evict_finished() {}
            self.shelf.shrink(&self.open.values().map(|spooler| &spooler.spool));
        }
        if let Some(link) = &mut link {
            for command_id in &dirty {
                self.feed(link, command_id);
            }
        }
    }

    /// Ends all of them.
    pub(super) fn end(&mut self, fate: Fate) {
        self.commit(None);
        for (_command_id, spooler) in self.open.drain() {
            for waiting in spooler.waiting {
                answer(waiting.opened, Err(CallError::Ended(fate)));
            }
            spooler.spool.fail(CallError::Ended(fate));
        }
    }

    fn readers(&self) -> usize {
        self.open.values().map(|spooler| spooler.spool.readers() + spooler.waiting.len()).sum()
    }

    /// Subscribes, gives credit or parks, as the spool has room. Does nothing for one that is over.
    fn feed(&mut self, link: &mut Link, command_id: &str) {
        let Some(spooler) = self.open.get_mut(command_id) else { return };
        if spooler.spool.is_over() {
            return;
        }
        let target = self.shelf.limits().window.min(spooler.spool.room());
        let Some(id) = spooler.subscription else {
            // Who waits for the guest's answer gets it whatever the room.
            if spooler.spool.wants_more() || !spooler.waiting.is_empty() {
                self.subscribe(link, command_id, target);
            }
            return;
        };
        if !spooler.streaming {
            return;
        }
        if target >= spooler.credit + self.shelf.limits().window / 4 {
            let bytes = target - spooler.credit;
            spooler.credit = target;
            send(link, &HostFrame::Credit { id, bytes });
        } else if spooler.credit < PIECE {
            self.park(link, command_id);
        }
    }

    fn subscribe(&mut self, link: &mut Link, command_id: &str, credit: u64) {
        if self.subscriptions.len() + self.left.len() >= limits::SUBSCRIPTIONS
            && !self.displace_for(link, command_id)
        {
            self.displaced = true;
            return;
        }
        let Some(spooler) = self.open.get_mut(command_id) else { return };
        let request = AttachCommandRequest {
            command_id: command_id.to_owned(),
            after_sequence: spooler.spool.last_sequence(),
            credit,
            create: spooler.create.clone(),
        };
        match link.request(Request::AttachCommand(request)) {
            Ok(id) => {
                spooler.subscription = Some(id);
                spooler.streaming = false;
                spooler.credit = credit;
                self.subscriptions.insert(id, command_id.to_owned());
            }
            Err(error) => {
                let error = CallError::from(error);
                for waiting in std::mem::take(&mut spooler.waiting) {
                    answer(waiting.opened, Err(error.clone()));
                }
                if !spooler.accepted {
                    self.open.remove(command_id);
                }
            }
        }
    }

    /// Makes a subscription free for a command that somebody reads or starts: of the others, the one that was silent
    /// for longest goes. Its ring goes on.
    fn displace_for(&mut self, link: &mut Link, command_id: &str) -> bool {
        if self.open.get(command_id).is_none_or(Spooler::is_idle) {
            return false;
        }
        let idle = self.open.iter().filter(|(_id, other)| other.may_be_displaced());
        let Some(silent) = idle.min_by_key(|(_id, other)| other.last_event).map(|(id, _other)| id.clone())
        else {
            return false;
        };
        self.park(link, &silent);
        true
    }

    fn park(&mut self, link: &mut Link, command_id: &str) {
        let Some(spooler) = self.open.get_mut(command_id) else { return };
        let Some(id) = spooler.subscription.take() else { return };
        self.subscriptions.remove(&id);
        self.left.insert(id, 0);
        send(link, &HostFrame::Detach { id });
        // If there is no room, the reader who makes some wakes the owner.
        if spooler.spool.wants_more() {
            self.displaced = true;
        }
    }

    /// Room for one more spool: of one that is over, or else of one that is parked.
    fn evict_one(&mut self) -> bool {
        self.evict_finished() || self.evict(|spooler| spooler.subscription.is_none())
    }

    fn evict_finished(&mut self) -> bool {
        self.evict(|spooler| spooler.spool.is_over())
    }

    /// Drops the spool of the oldest command that nobody reads and `may` go.
    fn evict(&mut self, may: impl Fn(&Spooler) -> bool) -> bool {
        let candidates = self.open.iter().filter(|(_id, spooler)| spooler.is_idle() && may(spooler));
        let oldest = candidates.min_by_key(|(_id, spooler)| spooler.last_event).map(|(id, _)| id.clone());
        let evicted = oldest.and_then(|command_id| self.open.remove(&command_id));
        if let Some(spooler) = &evicted {
            spooler.spool.clear();
        }
        evicted.is_some()
    }
}

impl Spooler {
    const fn new(spool: Arc<Spool>, create: Option<CommandSpec>) -> Self {
        Self {
            spool,
            create,
            accepted: false,
            waiting: Vec::new(),
            subscription: None,
            streaming: false,
            credit: 0,
            last_event: 0,
        }
    }

    /// Nobody reads it or waits to.
    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.spool.readers() == 0
    }

    fn may_be_displaced(&self) -> bool {
        self.subscription.is_some() && self.streaming && self.is_idle()
    }

    /// A caller that has given up takes its reader with it.
    fn open(&self, waiting: Waiting) {
        answer(waiting.opened, Ok(Opened::Reading(self.spool.reader(waiting.after))));
    }

    /// It failed for a reason that may have passed.
    fn may_be_asked_again(&self) -> bool {
        match self.spool.verdict() {
            Some(CallError::Refused { code: RefusalCode::NotFound | RefusalCode::Forgotten, .. }) | None => {
                false
            }
            Some(_) => true,
        }
    }
}

/// Frames of this side that need no answer. Breaking the rules with one would be a bug here.
fn send(link: &mut Link, frame: &HostFrame) {
    if let Err(error) = link.queue(frame) {
        error!(%error, "a frame was not sent");
    }
}

impl From<QueueError> for CallError {
    fn from(error: QueueError) -> Self {
        match error {
            QueueError::TooLarge(_) => Self::TooLarge,
            // The only rule that a well-made request can meet is the number of calls.
            QueueError::Misuse(_) => Self::TooMany,
        }
    }
}

/// A caller that has given up does not hear the answer.
fn answer<T>(caller: oneshot::Sender<Result<T, CallError>>, answer: Result<T, CallError>) {
    drop(caller.send(answer));
}
