//! A file's whole content: it appears under its name complete, or not at all.
//!
//! - `draft`: where the data is until then, in one connection. `upload`: in several.
//!
//! What is replaced must be a file that the user may write, as for a program that opens it; symbolic links lead
//! to what they point at. Nothing is synced: as with any program's file, the guest's kernel writes it back when
//! it pleases.

mod draft;
mod upload;

use std::os::fd::{AsFd, BorrowedFd};

use rustix::{
    fs::{
        Access, AtFlags, CWD, Gid, Mode, OFlags, RenameFlags, Uid, accessat, fchmod, fchown, linkat,
        renameat_with, unlinkat,
    },
    io::Errno,
};
use space_guest_proto::job::{Done, FailureKind, Opened, WriteFile};

use self::{draft::Draft, upload::Uploading};
use super::{
    Context, Outcome,
    failure::JobError,
    info::Infos,
    link::{Incoming, Link},
    read::refuse_other_than_file,
    target::{Target, refuse_directory_name},
};

const DEFAULT_MODE: u32 = 0o644;
const NEW_FILE: OFlags =
    OFlags::WRONLY.union(OFlags::CREATE).union(OFlags::EXCL).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// Until it has its own.
const DRAFT_MODE: Mode = Mode::from_raw_mode(0o600);

/// Those that are to change.
type Owner = (Option<Uid>, Option<Gid>);

/// What the finished file is to have.
struct Wanted {
    mode: Mode,
    owner: Option<Owner>,
    exclusive: bool,
}

impl Context {
    pub(super) fn write(&mut self, job: &WriteFile) -> Outcome {
        let target = target(job)?;
        let wanted = Wanted {
            mode: mode(job, &target),
            owner: owner(&self.infos, &job.owner)?,
            exclusive: job.exclusive,
        };
        match &job.upload {
            None => self.write_at_once(job, &target, &wanted),
            Some(upload) => {
                let mut uploading = Uploading::open(&target, upload).map_err(|error| error.at(&job.path))?;
                self.link.send_opened(Opened::default())?;
                uploading.receive(&mut self.link).map_err(|error| error.at(&job.path))?;
                let next_offset = uploading.end();
                if !upload.complete {
                    return Ok(Done { next_offset, ..Done::default() });
                }
                let stat = uploading.complete(&target, &wanted).map_err(JobError::at(&job.path))?;
                let info = self.infos.of(&stat, self.infos.absolute(&job.path), CWD, &job.path);
                Ok(Done { info: Some(info), next_offset, ..Done::default() })
            }
        }
    }

    fn write_at_once(&mut self, job: &WriteFile, target: &Target, wanted: &Wanted) -> Outcome {
        let failed = JobError::at(&job.path);
        let draft = Draft::new(target.directory.as_fd()).map_err(&failed)?;
        self.link.send_opened(Opened::default())?;
        receive(&mut self.link, draft.file()).map_err(|error| error.at(&job.path))?;
        finish(draft.file(), wanted).map_err(&failed)?;
        let stat = draft.place(target, wanted).map_err(&failed)?;
        let info = self.infos.of(&stat, self.infos.absolute(&job.path), CWD, &job.path);
        Ok(Done { info: Some(info), ..Done::default() })
    }
}

/// Where to write, unless that is refused already.
fn target(job: &WriteFile) -> Result<Target, JobError> {
    refuse_directory_name(&job.path)?;
    let target = Target::new(&job.path, job.parents)?;
    if job.exclusive {
        return match target.present {
            None => Ok(target),
            Some(_) => Err(JobError::at(&job.path)(Errno::EXIST)),
        };
    }
    let target = target.follow(&job.path)?;
    if let Some(stat) = &target.present {
        refuse_other_than_file(stat, &job.path)?;
        accessat(&target.directory, &*target.name, Access::WRITE_OK, AtFlags::EACCESS)
            .map_err(JobError::at(&job.path))?;
    }
    Ok(target)
}

fn mode(job: &WriteFile, target: &Target) -> Mode {
    let replaced = || target.present.map(|stat| stat.st_mode & 0o7777);
    Mode::from_raw_mode(job.mode.or_else(replaced).unwrap_or(DEFAULT_MODE))
}

fn owner(infos: &Infos, wanted: &str) -> Result<Option<Owner>, JobError> {
    if wanted.is_empty() {
        return Ok(None);
    }
    let (user, group) = match wanted.split_once(':') {
        Some((user, group)) => (user, Some(group)),
        None => (wanted, None),
    };
    let uid = if user.is_empty() { None } else { Some(Uid::from_raw(infos.accounts().find(user)?.uid)) };
    let gid = match group {
        None => None,
        Some(group) => {
            let unknown = || JobError::new(FailureKind::NoUser, format!("no group {group}"));
            Some(Gid::from_raw(infos.accounts().find_group(group).ok_or_else(unknown)?))
        }
    };
    Ok(Some((uid, gid)))
}

/// An error on the way, of which one kind knows its text already.
enum WriteError {
    Kernel(Errno),
    Job(JobError),
}

impl From<Errno> for WriteError {
    fn from(error: Errno) -> Self {
        Self::Kernel(error)
    }
}

impl From<JobError> for WriteError {
    fn from(error: JobError) -> Self {
        Self::Job(error)
    }
}

impl WriteError {
    fn at(self, path: &[u8]) -> JobError {
        match self {
            Self::Kernel(error) => JobError::at(path)(error),
            Self::Job(error) => error,
        }
    }
}

/// Data from the host to `file`, until `Finish`; how much.
fn receive(link: &mut Link, file: BorrowedFd<'_>) -> Result<u64, WriteError> {
    let mut received = 0;
    while let Incoming::Data(data) = link.receive_data()? {
        write_all(file, &data)?;
        received += data.len() as u64;
    }
    Ok(received)
}

pub(super) fn write_all(file: BorrowedFd<'_>, mut data: &[u8]) -> Result<(), Errno> {
    while !data.is_empty() {
        match rustix::io::write(file, data) {
            Ok(0) => return Err(Errno::NOSPC),
            Ok(written) => data = data.get(written..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The owner first: changing it clears set-uid.
fn finish(file: BorrowedFd<'_>, wanted: &Wanted) -> Result<(), Errno> {
    if let Some((uid, gid)) = wanted.owner {
        fchown(file, uid, gid)?;
    }
    fchmod(file, wanted.mode)
}

/// Gives the file `name` the target's name instead.
fn rename(target: &Target, name: &[u8], exclusive: bool) -> Result<(), Errno> {
    let directory = &target.directory;
    if !exclusive {
        return renameat_with(directory, name, directory, &*target.name, RenameFlags::empty());
    }
    match renameat_with(directory, name, directory, &*target.name, RenameFlags::NOREPLACE) {
        // A filesystem without the flag. A hard link replaces nothing either.
        Err(Errno::INVAL) => linkat(directory, name, directory, &*target.name, AtFlags::empty())
            .and_then(|()| unlinkat(directory, name, AtFlags::empty())),
        renamed => renamed,
    }
}
