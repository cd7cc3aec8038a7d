//! How fast requests may come: of a key, of a tenant, creates of a tenant, and failures of a peer to show a valid key.
//!
//! All of it is in this process's memory. A limit that replicas share would cost each request what it is there to
//! protect; what several replicas mean is in `docs/design/0004-tenancy.md`.

use std::{
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

pub(crate) use space_runtime::rate::PeerAddress;
use space_runtime::rate::{Buckets, Rate};
use space_types::{KeyId, TenantId};

use crate::config::RateLimitsConfig;

/// What there was too much of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Limited {
    Key,
    Tenant,
    Creates,
    Failures,
}

impl fmt::Display for Limited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Key => "this key sends requests faster than a key may",
            Self::Tenant => "the keys of this tenant together send requests faster than a tenant may",
            Self::Creates => "this tenant creates sandboxes faster than a tenant may",
            Self::Failures => "too many requests without a valid key came from this address",
        })
    }
}

/// A request that came too fast.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{limited}")]
pub(crate) struct TooFast {
    pub(crate) limited: Limited,
    /// The same request may pass after this.
    pub(crate) wait: Duration,
}

impl TooFast {
    /// As `Retry-After` has it: whole seconds, rounded up, so that whoever keeps to it is let through.
    pub(crate) fn retry_after(self) -> u32 {
        let seconds = self.wait.as_secs() + u64::from(self.wait.subsec_nanos() > 0);
        u32::try_from(seconds).unwrap_or(u32::MAX)
    }
}

#[derive(Debug)]
struct Owners {
    keys: Buckets<KeyId>,
    tenants: Buckets<TenantId>,
    creates: Buckets<TenantId>,
    peers: Buckets<PeerAddress>,
}

#[derive(Debug)]
pub(crate) struct RateLimits {
    since: Instant,
    owners: Mutex<Owners>,
}

impl RateLimits {
    pub(crate) fn new(config: &RateLimitsConfig) -> Self {
        let second = |tokens, burst| Rate::new(tokens, Duration::from_secs(1), burst);
        let failures = Rate::new(
            config.failed_authentications_per_minute,
            Duration::from_mins(1),
            config.failed_authentications_burst,
        );
        let owners = Owners {
            keys: Buckets::new(second(config.key_per_second, config.key_burst)),
            tenants: Buckets::new(second(config.tenant_per_second, config.tenant_burst)),
            creates: Buckets::new(second(config.creates_per_second, config.creates_burst)),
            peers: Buckets::new(failures),
        };
        Self { since: Instant::now(), owners: Mutex::new(owners) }
    }

    fn owners(&self) -> (MutexGuard<'_, Owners>, Duration) {
        let owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        (owners, self.since.elapsed())
    }

    /// Counts a request of this key. One that is refused costs neither the key nor its tenant anything.
    pub(crate) fn request(&self, key: KeyId, tenant: TenantId) -> Result<(), TooFast> {
        let (mut owners, now) = self.owners();
        passes(Limited::Key, owners.keys.wait(&key, now))?;
        passes(Limited::Tenant, owners.tenants.wait(&tenant, now))?;
        owners.keys.take(key, now);
        owners.tenants.take(tenant, now);
        Ok(())
    }

    /// Counts a request that creates a sandbox.
    pub(crate) fn create(&self, tenant: TenantId) -> Result<(), TooFast> {
        let (mut owners, now) = self.owners();
        passes(Limited::Creates, owners.creates.wait(&tenant, now))?;
        owners.creates.take(tenant, now);
        Ok(())
    }

    /// Whether this peer may still try to show who it is. Counts nothing: only failures are counted.
    pub(crate) fn attempt(&self, peer: PeerAddress) -> Result<(), TooFast> {
        let (owners, now) = self.owners();
        passes(Limited::Failures, owners.peers.wait(&peer, now))
    }

    /// Counts a failure. Those that were under way together may owe tokens, which later ones wait for.
    pub(crate) fn failed(&self, peer: PeerAddress) {
        let (mut owners, now) = self.owners();
        owners.peers.take(peer, now);
    }
}

fn passes(limited: Limited, wait: Duration) -> Result<(), TooFast> {
    if wait.is_zero() {
        return Ok(());
    }
    let label = match limited {
        Limited::Key => "key",
        Limited::Tenant => "tenant",
        Limited::Creates => "creates",
        Limited::Failures => "failed_authentications",
    };
    metrics::counter!("space_http_rate_limited_total", "limit" => label).increment(1);
    Err(TooFast { limited, wait })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(key_burst: u32, tenant_burst: u32) -> RateLimits {
        let slow =
            RateLimitsConfig { key_per_second: 1, tenant_per_second: 1, ..RateLimitsConfig::default() };
        RateLimits::new(&RateLimitsConfig { key_burst, tenant_burst, ..slow })
    }

    #[test]
    fn retry_after_is_rounded_up() {
        let seconds = |wait| TooFast { limited: Limited::Key, wait }.retry_after();
        let nanosecond = Duration::from_nanos(1);
        assert_eq!(
            [nanosecond, Duration::from_secs(1), Duration::from_secs(1) + nanosecond].map(seconds),
            [1, 1, 2]
        );
    }

    #[test]
    fn a_key_that_is_refused_costs_its_tenant_nothing() {
        let (limits, tenant) = (limits(1, 2), TenantId::new());
        let (busy, other) = (KeyId::new(), KeyId::new());
        limits.request(busy, tenant).unwrap();
        for _ in 0..5 {
            assert_eq!(limits.request(busy, tenant).unwrap_err().limited, Limited::Key);
        }
        limits.request(other, tenant).unwrap();
        assert_eq!(limits.request(KeyId::new(), tenant).unwrap_err().limited, Limited::Tenant);
        limits.request(KeyId::new(), TenantId::new()).unwrap();
    }
}
