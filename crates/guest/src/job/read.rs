//! A file's content, from an offset on.

use rustix::{
    fs::{CWD, FileType, Mode, OFlags, SeekFrom, Stat, fstat, openat, seek},
    io::Errno,
};
use space_guest_proto::job::{Done, FailureKind, Opened, ReadFile};

use super::{Context, Outcome, failure::JobError, link::Outgoing};

/// Opening a FIFO or a terminal must neither wait nor make it this process's.
const READ: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

impl Context {
    pub(super) fn read(&mut self, job: &ReadFile) -> Outcome {
        let failed = JobError::at(&job.path);
        let file = openat(CWD, &*job.path, READ, Mode::empty()).map_err(&failed)?;
        let stat = fstat(&file).map_err(&failed)?;
        refuse_other_than_file(&stat, &job.path)?;
        if job.offset > 0 {
            seek(&file, SeekFrom::Start(job.offset)).map_err(&failed)?;
        }
        let shown = self.infos.absolute(&job.path);
        let info = self.infos.of(&stat, shown.clone(), CWD, &job.path);
        self.link.send_opened(Opened { info: Some(info) })?;
        let mut left = job.length.unwrap_or(u64::MAX);
        let mut bytes = 0;
        let mut outgoing = Outgoing::new();
        while left > 0 {
            let room = outgoing.room();
            let wanted = usize::try_from(left).unwrap_or(usize::MAX).min(room.len());
            let read = match rustix::io::read(&file, room.get_mut(..wanted).unwrap_or_default()) {
                // Nothing there now: a file of the kernel's that would be waited for.
                Ok(0) | Err(Errno::AGAIN) => break,
                Ok(read) => read,
                Err(Errno::INTR) => continue,
                Err(error) => return Err(failed(error)),
            };
            outgoing.filled(read);
            self.link.send_data(&mut outgoing)?;
            left -= read as u64;
            bytes += read as u64;
        }
        let stat = fstat(&file).map_err(&failed)?;
        let info = self.infos.of(&stat, shown, CWD, &job.path);
        Ok(Done { info: Some(info), bytes, ..Done::default() })
    }
}

/// For a file that was opened, or is to be replaced.
pub(super) fn refuse_other_than_file(stat: &Stat, path: &[u8]) -> Result<(), JobError> {
    let path = String::from_utf8_lossy(path);
    let file_type = FileType::from_raw_mode(stat.st_mode);
    if file_type.is_file() {
        Ok(())
    } else if file_type.is_dir() {
        Err(JobError::new(FailureKind::IsADirectory, format!("{path}: a directory")))
    } else {
        Err(JobError::new(FailureKind::Type, format!("{path}: not a regular file")))
    }
}
