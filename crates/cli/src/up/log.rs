//! Logs of programs, kept from filling the disk: one of at most about 64 MiB, and the one before it.
//!
//! A program writes through a descriptor of its own, opened to append, so its log can't be renamed under it. It is
//! copied and then cut; what is written between the two is lost. The supervisor need not be in the way of each line
//! for that, which would break the programs when it breaks.

use std::{convert::Infallible, fs, io, time::Duration};

use camino::{Utf8Path, Utf8PathBuf};
use tokio::time::sleep;

const LIMIT: u64 = 64 * 1024 * 1024;
/// What a program writes in between comes on top.
const BETWEEN_LOOKS: Duration = Duration::from_secs(5);

/// Looks after a log for ever. Cancel safe: a cut that has begun is finished.
pub(super) async fn keep_bounded(log: &Utf8Path) -> Infallible {
    loop {
        let path = log.to_owned();
        match tokio::task::spawn_blocking(move || cut(&path, LIMIT)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => eprintln!("space: cannot cut {log}: {error}"),
            Err(error) => eprintln!("space: cannot cut {log}: {error}"),
        }
        sleep(BETWEEN_LOOKS).await;
    }
}

/// Moves what is in a log longer than `limit` to the older one.
fn cut(log: &Utf8Path, limit: u64) -> io::Result<()> {
    if fs::metadata(log)?.len() <= limit {
        return Ok(());
    }
    let older = older(log);
    // Where there is no room for a copy, an older log is worth less than the disk.
    if fs::copy(log, &older).is_err() {
        drop(fs::remove_file(&older));
    }
    fs::OpenOptions::new().write(true).open(log)?.set_len(0)
}

fn older(log: &Utf8Path) -> Utf8PathBuf {
    log.with_extension("log.1")
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn log(directory: &tempfile::TempDir) -> Utf8PathBuf {
        Utf8PathBuf::from_path_buf(directory.path().join("program.log")).unwrap()
    }

    #[test]
    fn a_log_is_cut_under_the_program_that_writes_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = log(&directory);
        let mut program = fs::OpenOptions::new().create(true).append(true).open(&path).unwrap();
        program.write_all(b"a long story").unwrap();
        cut(&path, 5).unwrap();
        program.write_all(b"on").unwrap();
        assert_eq!(fs::read(older(&path)).unwrap(), b"a long story");
        assert_eq!(fs::read(&path).unwrap(), b"on", "it goes on at the beginning, without a hole");
    }

    #[test]
    fn a_short_log_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = log(&directory);
        fs::write(&path, "short").unwrap();
        cut(&path, 5).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"short");
        assert!(!older(&path).exists());
    }

    #[test]
    fn a_log_is_cut_even_where_no_older_one_can_be_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = log(&directory);
        fs::write(&path, "a long story").unwrap();
        fs::create_dir(older(&path)).unwrap();
        cut(&path, 5).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), 0);
    }
}
