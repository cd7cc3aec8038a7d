//! `space completions`

use clap::CommandFactory;

use crate::Cli;

pub(super) fn run(shell: clap_complete::Shell) -> u8 {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "space", &mut script);
    crate::output::line(String::from_utf8_lossy(&script).trim_end());
    0
}
