//! All commands, and the limits on what they hold together.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    hash::{DefaultHasher, Hash, Hasher},
    time::{Duration, Instant},
};

use prost::Message;
use rustix::process::Pid;
use space_guest_proto::{
    limits,
    message::{CommandSpec, RefusalCode},
};

use super::{Command, ring::Ring};
use crate::clock;

/// A command that nobody attached to for this long may be forgotten when room is needed.
const UNSTARTED_KEPT: Duration = Duration::from_mins(10);
/// What is dropped from the largest ring when all of them together are too large.
const OUTPUT_STEP: usize = 64 * 1024;

pub(crate) struct Table {
    commands: BTreeMap<u64, Command>,
    by_id: HashMap<String, u64>,
    by_pid: HashMap<i32, u64>,
    forgotten: Forgotten,
    next_serial: u64,
    spec_bytes: usize,
    output_bytes: usize,
    output_limit: usize,
}

/// What came of the wish to make a command.
pub(crate) enum Created {
    Made(u64),
    Existed(u64),
    Refused(RefusalCode),
}

impl Table {
    /// `output_limit`: bytes that all rings together may hold.
    pub(crate) fn new(output_limit: usize) -> Self {
        Self {
            commands: BTreeMap::new(),
            by_id: HashMap::new(),
            by_pid: HashMap::new(),
            forgotten: Forgotten::default(),
            next_serial: 1,
            spec_bytes: 0,
            output_bytes: 0,
            output_limit,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.commands.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Command> {
        self.commands.values()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Command> {
        self.commands.values_mut()
    }

    pub(crate) fn after(&self, serial: u64) -> impl Iterator<Item = &Command> {
        self.commands.range(serial.saturating_add(1)..).map(|(_, command)| command)
    }

    pub(crate) fn get(&self, serial: u64) -> Option<&Command> {
        self.commands.get(&serial)
    }

    pub(crate) fn get_mut(&mut self, serial: u64) -> Option<&mut Command> {
        self.commands.get_mut(&serial)
    }

    /// The command with this id, or why there is none.
    pub(crate) fn find(&self, id: &str) -> Result<u64, RefusalCode> {
        match self.by_id.get(id) {
            Some(serial) => Ok(*serial),
            None if self.forgotten.contains(id) => Err(RefusalCode::Forgotten),
            None => Err(RefusalCode::NotFound),
        }
    }

    pub(crate) fn pid_started(&mut self, pid: Pid, serial: u64) {
        self.by_pid.insert(pid.as_raw_nonzero().get(), serial);
    }

    /// The command whose leader had this pid; the pid means nothing afterwards.
    pub(crate) fn pid_reaped(&mut self, pid: Pid) -> Option<u64> {
        self.by_pid.remove(&pid.as_raw_nonzero().get())
    }

    /// Makes a command, which was validated. The same id with the same specification is the same command.
    pub(crate) fn create(&mut self, id: &str, spec: CommandSpec) -> Created {
        match self.find(id) {
            Ok(serial) if self.commands.get(&serial).is_some_and(|command| command.spec == spec) => {
                return Created::Existed(serial);
            }
            Ok(_) => return Created::Refused(RefusalCode::AlreadyExists),
            Err(RefusalCode::Forgotten) => return Created::Refused(RefusalCode::Forgotten),
            Err(_) => {}
        }
        let spec_bytes = spec.encoded_len();
        if !self.make_room(spec_bytes) {
            return Created::Refused(RefusalCode::Exhausted);
        }
        let serial = self.next_serial;
        self.next_serial += 1;
        self.spec_bytes += spec_bytes;
        self.by_id.insert(id.to_owned(), serial);
        self.commands.insert(serial, fresh(serial, id, spec, spec_bytes));
        Created::Made(serial)
    }

    /// Forgets old commands until one more fits; false: nothing may be forgotten any more.
    fn make_room(&mut self, spec_bytes: usize) -> bool {
        while self.commands.len() >= limits::COMMANDS || self.spec_bytes + spec_bytes > limits::SPECS_BYTES {
            let now = Instant::now();
            let stale = |command: &&Command| {
                command.process.is_none() && now.duration_since(command.created) > UNSTARTED_KEPT
            };
            let idle = || self.commands.values().filter(|command| command.subscribers == 0);
            let exited = idle().find(|command| command.exit.is_some());
            let Some(victim) = exited.or_else(|| idle().find(stale)).map(|command| command.serial) else {
                return false;
            };
            self.forget(victim);
        }
        true
    }

    /// Closing its pipes also takes them out of the event loop: the children that may hold copies of them
    /// close all of the agent's descriptors before they do anything else.
    fn forget(&mut self, serial: u64) {
        let Some(command) = self.commands.remove(&serial) else { return };
        self.by_id.remove(&command.id);
        self.forgotten.add(&command.id);
        self.spec_bytes = self.spec_bytes.saturating_sub(command.spec_bytes);
        self.output_bytes = self.output_bytes.saturating_sub(command.ring.cost());
    }

    /// Adds to a command's ring, and keeps all rings together within their limit.
    pub(crate) fn record(&mut self, serial: u64, add: impl FnOnce(&mut Ring)) {
        let Some(command) = self.commands.get_mut(&serial) else { return };
        let before = command.ring.cost();
        add(&mut command.ring);
        self.output_bytes = (self.output_bytes + command.ring.cost()).saturating_sub(before);
        while self.output_bytes > self.output_limit {
            let Some(largest) = self.commands.values_mut().max_by_key(|command| command.ring.cost()) else {
                return;
            };
            let before = largest.ring.cost();
            largest.ring.shrink_to(before.saturating_sub(OUTPUT_STEP));
            largest.ring.release();
            let freed = before - largest.ring.cost();
            if freed == 0 {
                return;
            }
            self.output_bytes = self.output_bytes.saturating_sub(freed);
        }
    }
}

fn fresh(serial: u64, id: &str, spec: CommandSpec, spec_bytes: usize) -> Command {
    Command {
        serial,
        id: id.to_owned(),
        spec,
        spec_bytes,
        ring: Ring::default(),
        process: None,
        launch_failure: None,
        exit: None,
        subscribers: 0,
        pid: 0,
        created: Instant::now(),
        created_at_ms: clock::wall_ms(),
        started_at_ms: 0,
        exited_at_ms: 0,
    }
}

/// Ids that must not run again, as hashes: a false match refuses a fresh id, once in 2⁵² or so.
#[derive(Default)]
struct Forgotten(VecDeque<u64>);

impl Forgotten {
    fn hash(id: &str) -> u64 {
        let mut hasher = DefaultHasher::new();
        id.hash(&mut hasher);
        hasher.finish()
    }

    fn contains(&self, id: &str) -> bool {
        self.0.contains(&Self::hash(id))
    }

    fn add(&mut self, id: &str) {
        if self.0.len() >= limits::FORGOTTEN_COMMANDS {
            self.0.pop_front();
        }
        self.0.push_back(Self::hash(id));
    }
}

#[cfg(test)]
mod tests {
    use space_guest_proto::{Stream, message::Exit};

    use super::*;
    use crate::command::ring::Stamp;

    fn spec(name: &str) -> CommandSpec {
        CommandSpec { argv: vec![name.to_owned()], ..CommandSpec::default() }
    }

    fn made(created: &Created) -> u64 {
        match created {
            Created::Made(serial) => *serial,
            Created::Existed(_) | Created::Refused(_) => panic!("not made"),
        }
    }

    #[test]
    fn an_id_means_one_specification_for_ever() {
        let mut table = Table::new(1 << 20);
        let serial = made(&table.create("a", spec("true")));
        assert!(matches!(table.create("a", spec("true")), Created::Existed(found) if found == serial));
        assert!(matches!(table.create("a", spec("false")), Created::Refused(RefusalCode::AlreadyExists)));
    }

    #[test]
    fn the_oldest_exited_command_makes_room_and_never_runs_again() {
        let mut table = Table::new(1 << 20);
        for number in 0..limits::COMMANDS {
            made(&table.create(&number.to_string(), spec("true")));
        }
        assert!(matches!(table.create("more", spec("true")), Created::Refused(RefusalCode::Exhausted)));
        for command in table.iter_mut().skip(5) {
            command.exit = Some(Exit::default());
        }
        made(&table.create("more", spec("true")));
        assert_eq!(table.find("5"), Err(RefusalCode::Forgotten));
        assert!(matches!(table.create("5", spec("true")), Created::Refused(RefusalCode::Forgotten)));
        assert!(table.find("0").is_ok());
    }

    #[test]
    fn all_rings_together_stay_within_their_limit() {
        let limit = 300_000;
        let mut table = Table::new(limit);
        let serials: Vec<u64> = (0..4).map(|n| made(&table.create(&n.to_string(), spec("true")))).collect();
        let stamp = Stamp { generation: 1, at_ms: 1 };
        for _ in 0..10 {
            for serial in &serials {
                table.record(*serial, |ring| ring.push_output(stamp, Stream::Stdout, &vec![0; 32 * 1024]));
            }
        }
        let costs: Vec<usize> = table.iter().map(|command| command.ring.cost()).collect();
        assert!(costs.iter().sum::<usize>() <= limit, "{costs:?}");
        assert!(costs.iter().all(|cost| *cost > 0), "no ring is starved by the others: {costs:?}");
    }
}
