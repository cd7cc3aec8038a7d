//! Messages between replicas: what changed here goes out, coalesced; what changed elsewhere wakes those who wait here
//! and is forgotten by the caches.

use std::{sync::Arc, time::Duration};

use space_runtime::telemetry::chain;

use super::record;
use crate::{
    app::App,
    store::{
        StoreError,
        listener::{Told, parse},
    },
};

/// At most one message in this time.
const COALESCE: Duration = Duration::from_millis(10);
const RECONNECT: Duration = Duration::from_secs(1);

pub(crate) async fn send(app: Arc<App>) {
    loop {
        let changes = app.changes.outgoing().await;
        record("messages", app.store.notify(app.replica, &changes).await);
        tokio::time::sleep(COALESCE).await;
    }
}

pub(crate) async fn receive(app: Arc<App>) {
    loop {
        if let Err(error) = listen(&app).await {
            tracing::debug!(error = chain(&error), "listening for other replicas broke off");
        }
        // What was told meanwhile was missed.
        app.routes.forget_all();
        app.changes.publish_everything();
        tokio::time::sleep(RECONNECT).await;
    }
}

async fn listen(app: &App) -> Result<(), StoreError> {
    let mut listener = app.store.listen().await?;
    // `None`: the connection was lost, and messages with it.
    while let Some(notification) = listener.try_recv().await? {
        match parse(app.replica, notification.payload()) {
            None => {}
            Some(Told::Changes(changes)) => {
                for changed in changes {
                    app.routes.forget(changed.sandbox_id);
                    app.changes.publish_foreign(changed);
                }
            }
            Some(Told::Everything) => {
                app.routes.forget_all();
                app.changes.publish_everything();
            }
        }
    }
    Ok(())
}
