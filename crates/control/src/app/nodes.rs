//! Nodes, as admins see them.

use space_api::{Page, PageQuery, nodes::Node};

use super::{App, AppError, auth::Caller, page};

impl App {
    pub(crate) async fn node_list(&self, caller: &Caller, query: &PageQuery) -> Result<Page<Node>, AppError> {
        caller.require_admin()?;
        query.validate()?;
        let before = page::parse_cursor(query.cursor.as_deref())?;
        let items = self.store.node_list(before, query.limit() + 1).await?;
        Ok(page::page(items, query.limit(), |node| node.id))
    }
}
