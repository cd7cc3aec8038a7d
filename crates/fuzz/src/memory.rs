//! What a run allocates.

use std::cell::Cell;

thread_local! {
    static NOW: Cell<usize> = const { Cell::new(0) };
    static PEAK: Cell<usize> = const { Cell::new(0) };
}

/// Runs it, and tells how much more than before was allocated by this thread at the highest.
pub(crate) fn peak_of(run: impl FnOnce()) -> usize {
    let before = NOW.get();
    PEAK.set(before);
    run();
    PEAK.get().saturating_sub(before)
}

/// Called by the allocator, so it must not allocate. Memory that another thread frees counts as still there.
pub(crate) fn allocated(bytes: usize) {
    // A thread that ends frees after its counters are gone.
    let counted = NOW.try_with(|now| {
        now.set(now.get().saturating_add(bytes));
        now.get()
    });
    if let Ok(now) = counted {
        PEAK.try_with(|peak| peak.set(peak.get().max(now))).ok();
    }
}

pub(crate) fn freed(bytes: usize) {
    NOW.try_with(|now| now.set(now.get().saturating_sub(bytes))).ok();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_freed_again_counts_at_its_height() {
        let peak = peak_of(|| {
            drop(std::hint::black_box(vec![1_u8; 1 << 20]));
            drop(std::hint::black_box(vec![1_u8; 1 << 10]));
        });
        assert!((1 << 20..(1 << 20) + 4096).contains(&peak), "{peak}");
    }

    #[test]
    fn a_vector_that_grows_counts_as_what_it_grew_to() {
        let peak = peak_of(|| {
            let mut grown: Vec<u8> = Vec::with_capacity(16);
            grown.resize(100_000, 7);
            std::hint::black_box(&grown);
        });
        assert!(peak >= 100_000, "{peak}");
    }
}
