//! What a request means for a sandbox in a given state. Pure: no clock, no I/O, no `async`.
//!
//! Generations order commands: an older one than the sandbox has seen is refused, the same one is a
//! repetition and answered from what is there.

/// Where a sandbox is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Life {
    /// Nothing of it is here; `removed` is the generation that it was removed under, if it was.
    Unknown {
        removed: Option<u64>,
    },
    Booting {
        generation: u64,
    },
    Running {
        generation: u64,
    },
    /// Stopped or failed; the disk is kept.
    Ended {
        generation: u64,
    },
    /// A removal was begun and has not succeeded yet.
    Removing {
        generation: u64,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Request {
    Ensure { generation: u64 },
    Remove { generation: u64 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admission {
    /// Do it.
    Begin,
    /// It is being done: wait for the same result.
    Join,
    /// It is done: answer what is there.
    AlreadyDone,
    /// It runs already, under an older generation: take the new one and answer.
    Refresh,
    Denied(Denial),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Denial {
    #[error("the command's generation is older than {known}, which this node has seen")]
    Stale { known: u64 },
    #[error("the sandbox has ended; it can only be removed")]
    Ended,
    #[error("the sandbox is being removed")]
    Leaving,
    #[error("an older command for the sandbox is under way")]
    Busy,
}

pub(crate) fn admit(life: Life, request: Request) -> Admission {
    match request {
        Request::Ensure { generation } => admit_ensure(life, generation),
        Request::Remove { generation } => admit_remove(life, generation),
    }
}

fn admit_ensure(life: Life, asked: u64) -> Admission {
    match life {
        Life::Unknown { removed: Some(known) } if asked <= known => {
            Admission::Denied(Denial::Stale { known })
        }
        Life::Unknown { .. } => Admission::Begin,
        Life::Booting { generation: known }
        | Life::Running { generation: known }
        | Life::Ended { generation: known }
        | Life::Removing { generation: known }
            if asked < known =>
        {
            Admission::Denied(Denial::Stale { known })
        }
        Life::Booting { generation } if asked == generation => Admission::Join,
        Life::Booting { .. } => Admission::Denied(Denial::Busy),
        Life::Running { generation } if asked == generation => Admission::AlreadyDone,
        Life::Running { .. } => Admission::Refresh,
        Life::Ended { generation } if asked == generation => Admission::AlreadyDone,
        Life::Ended { .. } => Admission::Denied(Denial::Ended),
        Life::Removing { .. } => Admission::Denied(Denial::Leaving),
    }
}

fn admit_remove(life: Life, asked: u64) -> Admission {
    match life {
        Life::Unknown { .. } => Admission::AlreadyDone,
        Life::Booting { generation: known }
        | Life::Running { generation: known }
        | Life::Ended { generation: known }
        | Life::Removing { generation: known } => {
            if asked < known {
                Admission::Denied(Denial::Stale { known })
            } else {
                Admission::Begin
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn life() -> impl Strategy<Value = Life> {
        (0_u8..6, 0_u64..4).prop_map(|(kind, generation)| match kind {
            0 => Life::Unknown { removed: None },
            1 => Life::Unknown { removed: Some(generation) },
            2 => Life::Booting { generation },
            3 => Life::Running { generation },
            4 => Life::Ended { generation },
            _ => Life::Removing { generation },
        })
    }

    fn known(life: Life) -> Option<u64> {
        match life {
            Life::Unknown { removed } => removed,
            Life::Booting { generation }
            | Life::Running { generation }
            | Life::Ended { generation }
            | Life::Removing { generation } => Some(generation),
        }
    }

    proptest! {
        #[test]
        fn an_older_ensure_never_does_anything(life in life(), generation in 0_u64..4) {
            prop_assume!(known(life).is_some_and(|known| generation < known));
            let admission = admit(life, Request::Ensure { generation });
            let stale = matches!(admission, Admission::Denied(Denial::Stale { .. }));
            prop_assert!(stale, "{:?}", admission);
        }

        #[test]
        fn a_repeated_ensure_is_never_denied_while_the_sandbox_is_there(generation in 0_u64..4) {
            for life in [Life::Booting { generation }, Life::Running { generation }, Life::Ended { generation }] {
                let admission = admit(life, Request::Ensure { generation });
                prop_assert!(matches!(admission, Admission::Join | Admission::AlreadyDone));
            }
        }

        #[test]
        fn what_was_removed_is_not_made_again_by_the_same_generation(generation in 0_u64..4) {
            let life = Life::Unknown { removed: Some(generation) };
            let admission = admit(life, Request::Ensure { generation });
            prop_assert_eq!(admission, Admission::Denied(Denial::Stale { known: generation }));
        }

        #[test]
        fn a_current_remove_is_never_denied(life in life(), generation in 0_u64..4) {
            prop_assume!(known(life).is_none_or(|known| generation >= known));
            let admission = admit(life, Request::Remove { generation });
            prop_assert!(matches!(admission, Admission::Begin | Admission::AlreadyDone));
        }
    }
}
