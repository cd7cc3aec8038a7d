//! Control's public keys, fetched every minute. The last ones stay in use while control is away.

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use space_runtime::telemetry::chain;
use tokio::{sync::watch, time::sleep};

use crate::{control::ControlLink, parse::token::PublicKey};

const EVERY: Duration = Duration::from_mins(1);
/// While there are none.
const SOON: Duration = Duration::from_secs(1);

/// Empty until control was asked.
pub(crate) type TokenKeys = watch::Receiver<Arc<[PublicKey]>>;

/// Unix seconds, in which tokens end.
pub(crate) fn unix_now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs().cast_signed()
}

/// Cancel safe.
pub(crate) async fn fetch_forever(control: ControlLink, keys: watch::Sender<Arc<[PublicKey]>>) {
    loop {
        match control.token_keys().await {
            Ok(fetched) => {
                keys.send_replace(fetched.into());
            }
            Err(error) => tracing::warn!(error = %chain(&error), "cannot fetch the token keys"),
        }
        let pause = if keys.borrow().is_empty() { SOON } else { EVERY };
        sleep(pause).await;
    }
}
