//! Fuzz targets: for each parser of hostile bytes, what has to hold whatever the bytes are.
//!
//! A target panics where a property breaks: it reads the bytes as the program would, and compares with a model of its
//! own, with the same bytes cut up another way, or with what is written back. What it allocates is counted.
//!
//! - [`TARGETS`]: all of them. A new parser of hostile bytes gets a line there, a file in `targets/` and seeds in
//!   `corpus/<name>/`.
//! - `tests/corpus.rs` runs the whole corpus through them with every unit test run, without a fuzzer.
//! - `cargo xtask fuzz` runs them under libFuzzer with coverage (`instrument`), for as long as asked.

mod memory;
mod script;
mod sys;
mod targets;

/// The environment variable that tells the fuzzer's program which target to run.
pub const TARGET_VARIABLE: &str = "SPACE_FUZZ_TARGET";

/// One parser and its properties.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Also the name of its directory in `corpus/`.
    pub name: &'static str,
    /// The longest input that is tried.
    pub input_bytes: usize,
    /// What one run may have allocated at any moment. A parser that keeps its own limits stays far below.
    memory_bytes: usize,
    run: fn(&[u8]),
}

/// Room for one frame, its copy and what it decodes to, several times over.
const FRAMES_MEMORY: usize = 4 << 20;
const TEXT_MEMORY: usize = 1 << 20;

pub const TARGETS: [Target; 18] = [
    Target {
        name: "guest_frames",
        input_bytes: 8 << 10,
        memory_bytes: FRAMES_MEMORY,
        run: targets::frames::guest,
    },
    Target {
        name: "host_frames",
        input_bytes: 8 << 10,
        memory_bytes: FRAMES_MEMORY,
        run: targets::frames::host,
    },
    Target {
        name: "job_frames",
        input_bytes: 8 << 10,
        memory_bytes: FRAMES_MEMORY,
        run: targets::job_frames::run,
    },
    Target {
        name: "conversation",
        input_bytes: 2 << 10,
        memory_bytes: FRAMES_MEMORY,
        run: targets::conversation::run,
    },
    Target { name: "listing", input_bytes: 2 << 10, memory_bytes: FRAMES_MEMORY, run: targets::listing::run },
    Target { name: "archive", input_bytes: 16 << 10, memory_bytes: 8 << 20, run: targets::archive::run },
    Target {
        name: "event_stream",
        input_bytes: 4 << 10,
        memory_bytes: TEXT_MEMORY,
        run: targets::event_stream::run,
    },
    Target { name: "port_name", input_bytes: 256, memory_bytes: TEXT_MEMORY, run: targets::port_name::run },
    Target {
        name: "template_ref",
        input_bytes: 256,
        memory_bytes: TEXT_MEMORY,
        run: targets::template_ref::run,
    },
    Target { name: "byte_range", input_bytes: 128, memory_bytes: TEXT_MEMORY, run: targets::byte_range::run },
    text("edge_host", 512, targets::edge_host::run),
    text("edge_cookies", 1 << 10, targets::edge_cookies::run),
    text("edge_credentials", 2 << 10, targets::edge_credentials::run),
    text("edge_proxy_protocol", 2 << 10, targets::edge_proxy_protocol::run),
    text("edge_query", 1 << 10, targets::edge_query::run),
    text("edge_set_cookie", 512, targets::edge_set_cookie::run),
    text("edge_token", 512, targets::edge_token::run),
    Target { name: "console", input_bytes: 2 << 10, memory_bytes: 1 << 20, run: targets::console::run },
];

/// A target whose input is a line or a few.
const fn text(name: &'static str, input_bytes: usize, run: fn(&[u8])) -> Target {
    Target { name, input_bytes, memory_bytes: TEXT_MEMORY, run }
}

impl Target {
    /// Panics where a property breaks.
    pub fn run(&self, bytes: &[u8]) {
        let bytes = &bytes[..bytes.len().min(self.input_bytes)];
        let peak = memory::peak_of(|| (self.run)(bytes));
        assert!(peak <= self.memory_bytes, "{} bytes were allocated for {} of input", peak, bytes.len());
    }
}
