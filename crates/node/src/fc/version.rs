//! Which Firecracker this is, asked of itself: what a configuration says would only be believed.

use std::{io, process::Stdio, time::Duration};

use camino::Utf8Path;
use tokio::{process::Command, time::timeout};

const LONGEST: usize = 32;

/// Runs `binary`, which is the pinned one, with `--version`.
pub(crate) async fn vmm_version(binary: &Utf8Path, deadline: Duration) -> io::Result<String> {
    let mut command = Command::new(binary);
    command.arg("--version").env_clear().current_dir("/").stdin(Stdio::null()).kill_on_drop(true);
    let output = timeout(deadline, command.output()).await??;
    let said = String::from_utf8_lossy(&output.stdout);
    parse(&said).ok_or_else(|| {
        io::Error::other(format!("it said: {}", said.escape_debug().take(200).collect::<String>()))
    })
}

/// The first line is `Firecracker v1.12.1`.
fn parse(said: &str) -> Option<String> {
    let version = said.lines().next()?.trim().strip_prefix("Firecracker v")?;
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'+');
    let sane = (1..=LONGEST).contains(&version.len()) && version.bytes().all(plain);
    sane.then(|| version.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_on_the_first_line() {
        let said =
            "Firecracker v1.12.1\n\n2026-11-30T21:45:25 [anonymous-instance:main] exiting. exit_code=0\n";
        assert_eq!(parse(said).as_deref(), Some("1.12.1"));
        for odd in ["", "Firecracker v", "Firecracker v1 2", "jailer v1.12.1", "\nFirecracker v1.12.1"] {
            assert_eq!(parse(odd), None, "{odd}");
        }
    }

    #[tokio::test]
    async fn a_program_that_says_something_else_is_quoted() {
        let error = vmm_version(Utf8Path::new("/bin/echo"), Duration::from_secs(20)).await.unwrap_err();
        assert!(error.to_string().starts_with("it said: "), "{error}");
    }
}
