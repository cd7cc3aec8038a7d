//! Usage, read. A project that was deleted keeps its days.

use space_api::usage::{Usage, UsageQuery};

use super::{App, AppError, auth::Caller};

impl App {
    pub(crate) async fn usage_get(&self, caller: &Caller, query: &UsageQuery) -> Result<Usage, AppError> {
        let (from, to) = query.days(jiff::Timestamp::now())?;
        let Some(reach) = caller.reach().within(query.project_id) else {
            return Err(AppError::NotFound("project"));
        };
        let (from, to) = (from.to_string(), to.to_string());
        let items = self.store.usage(reach, &from, &to).await?;
        Ok(Usage { from, to, items })
    }
}
