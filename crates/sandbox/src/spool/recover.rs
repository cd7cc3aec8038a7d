//! What a worker finds of its predecessor in a sandbox's directory. Segments are taken as they are but for the newest
//! of a command: that one is read to its end, and cut where it stops making sense.

use std::{
    collections::{BTreeMap, HashMap},
    fs::File,
    io::{self, Read},
    sync::{Arc, atomic::Ordering},
};

use space_node_proto::commands::command_event::Kind;
use tracing::{info, warn};

use super::{
    directory::SpoolDirectory,
    log::{Segment, Shared, Spool, Store},
    position::Position,
    segment::{self, Parsed},
};

struct Found {
    start: Position,
    length: u64,
}

/// Where the newest segment ends.
struct Tail {
    position: Position,
    length: u64,
    exited: bool,
}

/// All spools in the directory. Blocks. What can't be read is removed.
pub(super) fn spools(shared: &Arc<Shared>) -> HashMap<String, Arc<Spool>> {
    let Some(directory) = &shared.directory else { return HashMap::new() };
    let names = directory.names().unwrap_or_else(|error| {
        warn!(%error, "a sandbox's spools can't be listed");
        Vec::new()
    });
    let mut numbers: HashMap<String, Vec<u64>> = HashMap::new();
    for name in &names {
        match segment::parse_name(name) {
            Some((command_id, number)) => numbers.entry(command_id.to_owned()).or_default().push(number),
            None => directory.remove(name),
        }
    }
    let found = numbers.into_iter().filter_map(|(command_id, mut numbers)| {
        numbers.sort_unstable();
        let spool = spool(shared, directory, &command_id, numbers)?;
        Some((command_id, Arc::new(spool)))
    });
    found.collect()
}

fn spool(
    shared: &Arc<Shared>,
    directory: &SpoolDirectory,
    command_id: &str,
    mut numbers: Vec<u64>,
) -> Option<Spool> {
    let tail = loop {
        let number = numbers.last()?;
        match tail(directory, &segment::name(command_id, *number)) {
            Ok(tail) if tail.length > 0 => break tail,
            Ok(_empty) => {}
            Err(error) => warn!(command_id, number, %error, "a segment is given up"),
        }
        directory.remove(&segment::name(command_id, *number));
        numbers.pop();
    };
    let mut segments = BTreeMap::new();
    let mut base = 0;
    let newest = numbers.last().copied();
    for number in numbers {
        let name = segment::name(command_id, number);
        let Ok(mut found) = look(directory, &name) else {
            directory.remove(&name);
            continue;
        };
        if Some(number) == newest {
            found.length = tail.length;
        }
        let Found { start, length } = found;
        segments.insert(number, Segment { start, base, length, store: Store::Disk(None) });
        base += length;
    }
    shared.disk.fetch_add(base, Ordering::Relaxed);
    info!(command_id, bytes = base, sequence = tail.position.sequence, "a spool is taken up again");
    Some(Spool::new(command_id.to_owned(), Arc::clone(shared), segments, tail.position, tail.exited))
}

fn look(directory: &SpoolDirectory, name: &str) -> io::Result<Found> {
    let mut file = directory.open_to_read(name)?;
    let length = file.metadata()?.len().saturating_sub(segment::HEAD as u64);
    Ok(Found { start: read_head(&mut file)?, length })
}

fn read_head(file: &mut File) -> io::Result<Position> {
    let mut head = [0; segment::HEAD];
    file.read_exact(&mut head)?;
    segment::parse_head(&head).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Reads a segment to the end of its last good record, and cuts off the rest.
fn tail(directory: &SpoolDirectory, name: &str) -> io::Result<Tail> {
    let mut file = directory.open_to_append(name)?;
    let mut position = read_head(&mut file)?;
    let mut records = Vec::new();
    file.read_to_end(&mut records)?;
    let (mut read, mut exited) = (0, false);
    while let Parsed::Whole(event, length) = segment::parse_record(&records[read..]) {
        let Ok(next) = position.advanced(&event) else { break };
        position = next;
        read += length;
        exited = matches!(event.kind, Some(Kind::Exit(_)));
    }
    if read < records.len() {
        info!(name, bytes = records.len() - read, "the torn end of a segment is cut off");
        file.set_len((segment::HEAD + read) as u64)?;
    }
    Ok(Tail { position, length: read as u64, exited })
}
