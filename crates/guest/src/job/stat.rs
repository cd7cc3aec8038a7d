//! What a file is.

use space_guest_proto::job::{Done, StatFile};

use super::{Context, Outcome, failure::JobError};

impl Context {
    pub(super) fn stat(&mut self, job: &StatFile) -> Outcome {
        let info = self.infos.at(&job.path, job.follow).map_err(JobError::at(&job.path))?;
        Ok(Done { info: Some(info), ..Done::default() })
    }
}
