//! A new directory.

use std::os::fd::AsFd;

use rustix::{
    fs::{AtFlags, CWD, FileType, Mode, chmodat, mkdirat, statat},
    io::Errno,
};
use space_guest_proto::job::{Done, MakeDirectory};

use super::{
    Context, Outcome,
    failure::JobError,
    target::{Target, open_or_make, split},
};

const DEFAULT_MODE: u32 = 0o755;
/// What mkdir(2) leaves away.
const SPECIAL: u32 = 0o6000;

impl Context {
    pub(super) fn make_directory(&mut self, job: &MakeDirectory) -> Outcome {
        let failed = JobError::at(&job.path);
        if job.parents && split(&job.path).is_none() {
            // `/`, `..`: they are there, or can't be made.
            open_or_make(CWD, &job.path).map_err(&failed)?;
        } else {
            make(job)?;
        }
        let info = self.infos.at(&job.path, true).map_err(&failed)?;
        Ok(Done { info: Some(info), ..Done::default() })
    }
}

fn make(job: &MakeDirectory) -> Result<(), JobError> {
    let failed = JobError::at(&job.path);
    let target = Target::new(&job.path, job.parents)?;
    let mode = job.mode.unwrap_or(DEFAULT_MODE);
    match mkdirat(&target.directory, &*target.name, Mode::from_raw_mode(mode)) {
        Ok(()) if mode & SPECIAL == 0 => Ok(()),
        Ok(()) => chmodat(&target.directory, &*target.name, Mode::from_raw_mode(mode), AtFlags::empty())
            .map_err(&failed),
        Err(Errno::EXIST) if job.parents && is_directory(target.directory.as_fd(), &target.name) => Ok(()),
        Err(error) => Err(failed(error)),
    }
}

/// Or a symbolic link to one, which serves as well.
fn is_directory(directory: impl AsFd, name: &[u8]) -> bool {
    statat(directory, name, AtFlags::empty()).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_dir())
}
