//! What the end of a VM is called. Facts that the host knows come first, because a guest can announce
//! whatever it likes; its word only tells apart the orderly ends.

use space_types::Reason;

use crate::{journal::Phase, sys::ExitStatus};

/// What the guest said it was about to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hint {
    PowerOff,
    Reboot,
    Panic,
}

/// The name of an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    Stopped(Reason),
    Failed(Reason),
}

impl From<Ending> for Phase {
    fn from(ending: Ending) -> Self {
        match ending {
            Ending::Stopped(reason) => Self::Stopped(reason),
            Ending::Failed(reason) => Self::Failed(reason),
        }
    }
}

/// Names the end of a VM that had been `running` from its exit, from whether its cgroup ran out of memory,
/// and from the guest's word.
pub(super) fn classify(status: ExitStatus, out_of_memory: bool, hint: Option<Hint>) -> Ending {
    if out_of_memory {
        return Ending::Failed(Reason::VmmOom);
    }
    match (status, hint) {
        // `Unknown`: adopted after a restart, so nobody could ask for its code.
        (ExitStatus::Signal(_), _) | (ExitStatus::Unknown, None) => Ending::Failed(Reason::VmmDied),
        (ExitStatus::Code(code), _) if code != 0 => Ending::Failed(Reason::VmmDied),
        (ExitStatus::Code(_) | ExitStatus::Unknown, Some(Hint::PowerOff)) => {
            Ending::Stopped(Reason::GuestShutdown)
        }
        (ExitStatus::Code(_) | ExitStatus::Unknown, Some(Hint::Reboot)) => {
            Ending::Stopped(Reason::GuestReboot)
        }
        (ExitStatus::Code(_) | ExitStatus::Unknown, Some(Hint::Panic)) => Ending::Failed(Reason::GuestPanic),
        (ExitStatus::Code(_), None) => Ending::Stopped(Reason::GuestExit),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_ends_is_as_documented() {
        let statuses = [ExitStatus::Code(0), ExitStatus::Code(1), ExitStatus::Signal(9), ExitStatus::Unknown];
        let hints = [None, Some(Hint::PowerOff), Some(Hint::Reboot), Some(Hint::Panic)];
        let mut lines = Vec::new();
        for out_of_memory in [false, true] {
            for status in statuses {
                for hint in hints {
                    let (hint_text, status_text) = (format!("{hint:?}"), format!("{status:?}"));
                    let oom = if out_of_memory { "oom" } else { "-" };
                    let ending = classify(status, out_of_memory, hint);
                    lines.push(format!("{status_text:<10} {oom:<4} {hint_text:<15} {ending:?}"));
                }
            }
        }
        insta::assert_snapshot!(lines.join("\n"));
    }
}
