//! Another name for a file or directory.

use rustix::{
    fs::{AtFlags, CWD, RenameFlags, renameat_with, statat},
    io::Errno,
};
use space_guest_proto::job::{Done, MoveFile};

use super::{Context, Outcome, failure::JobError};

impl Context {
    pub(super) fn move_file(&mut self, job: &MoveFile) -> Outcome {
        let moved = if job.replace {
            renameat_with(CWD, &*job.from, CWD, &*job.to, RenameFlags::empty())
        } else {
            move_to_free_name(job)
        };
        moved.map_err(|error| {
            let [from, to] = [&job.from, &job.to].map(|path| String::from_utf8_lossy(path).into_owned());
            JobError::of(error, format!("{from} to {to}"))
        })?;
        let info = self.infos.at(&job.to, false).map_err(JobError::at(&job.to))?;
        Ok(Done { info: Some(info), ..Done::default() })
    }
}

fn move_to_free_name(job: &MoveFile) -> Result<(), Errno> {
    match renameat_with(CWD, &*job.from, CWD, &*job.to, RenameFlags::NOREPLACE) {
        // Also the answer of a filesystem that doesn't know the flag. There the question and the move are two
        // steps.
        Err(Errno::INVAL) => match statat(CWD, &*job.to, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Err(Errno::EXIST),
            Err(Errno::NOENT) => renameat_with(CWD, &*job.from, CWD, &*job.to, RenameFlags::empty()),
            Err(error) => Err(error),
        },
        moved => moved,
    }
}
