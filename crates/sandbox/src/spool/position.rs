//! How far a command's events have come: what the next one must continue. It survives connections, which the rules of
//! the guest protocol do not, and is the head of each segment, so that it survives the worker too.

use space_node_proto::commands::{CommandEvent, command_event::Kind, output};

/// An event that does not continue the one before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an event that does not continue the one before it")]
pub(crate) struct Discontinuity;

/// Behind an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) sequence: u64,
    /// The next offset of stdout and stderr, and whether it is exact: behind a gap it is only a lower bound.
    pub(crate) offsets: [(u64, bool); 2],
}

impl Position {
    pub(crate) const START: Self = Self { sequence: 0, offsets: [(0, true); 2] };

    /// The position behind `event`, which must continue this one.
    pub(crate) fn advanced(mut self, event: &CommandEvent) -> Result<Self, Discontinuity> {
        let due = self.sequence.checked_add(1).ok_or(Discontinuity)?;
        match &event.kind {
            Some(Kind::Gap(gap)) => {
                if gap.first_lost != due || gap.last_lost < due || event.sequence != gap.last_lost {
                    return Err(Discontinuity);
                }
                for ((next, exact), lost) in self.offsets.iter_mut().zip([gap.stdout_bytes, gap.stderr_bytes])
                {
                    *next = next.checked_add(lost).ok_or(Discontinuity)?;
                    *exact = false;
                }
            }
            Some(Kind::Output(piece)) => {
                let stream = usize::from(piece.stream() == output::Stream::Stderr);
                let (next, exact) = self.offsets[stream];
                let continues = if exact { piece.offset == next } else { piece.offset >= next };
                let end = piece.offset.checked_add(piece.data.len() as u64).ok_or(Discontinuity)?;
                if !continues || event.sequence != due {
                    return Err(Discontinuity);
                }
                self.offsets[stream] = (end, true);
            }
            Some(Kind::Started(_) | Kind::Exit(_)) | None => {
                if event.sequence != due {
                    return Err(Discontinuity);
                }
            }
        }
        self.sequence = event.sequence;
        Ok(self)
    }

    pub(super) fn bytes(&self) -> [u64; 2] {
        self.offsets.map(|(next, _exact)| next)
    }
}
