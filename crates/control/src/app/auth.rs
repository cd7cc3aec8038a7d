//! Who is asking. A key's record is remembered for a second, so that a burst of requests asks the database once;
//! that second is also the longest that a key revoked on another replica is still accepted here. On this one
//! revocation is immediate.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use aws_lc_rs::digest::{SHA256, digest};
use space_api::keys::{ApiKey, Role};
use space_types::{KeyId, TenantId};
use subtle::ConstantTimeEq as _;

use super::{App, AppError};
use crate::store::keys::StoredKey;

const REMEMBERED_FOR: Duration = Duration::from_secs(1);
/// Beyond this many the cache starts anew.
const MOST_KEYS: usize = 10_000;

/// Who makes a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Caller {
    pub(crate) tenant_id: TenantId,
    pub(crate) key_id: KeyId,
    pub(crate) role: Role,
}

impl Caller {
    pub(crate) fn require_admin(&self) -> Result<(), AppError> {
        match self.role {
            Role::Admin => Ok(()),
            Role::Member => Err(AppError::Forbidden),
        }
    }
}

#[derive(Debug, Default)]
struct Entries {
    /// Grows with every revocation: what was read before one must not be remembered after it.
    epoch: u64,
    keys: HashMap<KeyId, (Instant, Option<StoredKey>)>,
}

/// What the cache says of a key's id.
#[derive(Debug)]
enum Remembered {
    Key(StoredKey),
    /// There is none, or it is revoked.
    NoKey,
    Nothing {
        epoch: u64,
    },
}

#[derive(Debug, Default)]
pub(crate) struct KeyCache(Mutex<Entries>);

impl KeyCache {
    fn get(&self, id: KeyId) -> Remembered {
        let entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match entries.keys.get(&id).filter(|(read_at, _)| read_at.elapsed() < REMEMBERED_FOR) {
            Some((_, Some(key))) => Remembered::Key(key.clone()),
            Some((_, None)) => Remembered::NoKey,
            None => Remembered::Nothing { epoch: entries.epoch },
        }
    }

    fn put(&self, epoch: u64, id: KeyId, read_at: Instant, key: Option<StoredKey>) {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.epoch != epoch {
            return;
        }
        if entries.keys.len() >= MOST_KEYS {
            entries.keys.clear();
        }
        entries.keys.insert(id, (read_at, key));
    }

    /// To be called after the commit that revoked the key.
    pub(super) fn forget(&self, id: KeyId) {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        entries.epoch += 1;
        entries.keys.remove(&id);
    }
}

/// What is stored of a secret of 32 random bytes. No salt or slow hash: there is nothing to guess.
pub(crate) fn hash_secret(secret: &[u8]) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, secret).as_ref());
    hash
}

/// 32 bytes that nobody can guess.
pub(crate) fn random_secret() -> Result<[u8; 32], AppError> {
    let mut secret = [0; 32];
    aws_lc_rs::rand::fill(&mut secret).map_err(|_unspecified| AppError::Random)?;
    Ok(secret)
}

impl App {
    /// The caller that a key belongs to. Wrong, revoked and unknown keys can't be told apart.
    pub(crate) async fn authenticate(&self, text: &str) -> Result<Caller, AppError> {
        let key: ApiKey = text.parse().map_err(|_unparsed| AppError::Unauthorized)?;
        let stored = match self.keys.get(key.id) {
            Remembered::Key(stored) => Some(stored),
            Remembered::NoKey => None,
            Remembered::Nothing { epoch } => {
                let read_at = Instant::now();
                let stored = self.store.key_find(key.id).await?;
                self.keys.put(epoch, key.id, read_at, stored.clone());
                stored
            }
        };
        let stored = stored.ok_or(AppError::Unauthorized)?;
        if !bool::from(hash_secret(&key.secret).ct_eq(&stored.secret_hash)) {
            return Err(AppError::Unauthorized);
        }
        Ok(Caller { tenant_id: stored.tenant_id, key_id: key.id, role: stored.role })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored() -> StoredKey {
        StoredKey { tenant_id: TenantId::new(), role: Role::Member, secret_hash: [0; 32] }
    }

    #[test]
    fn what_was_read_before_a_revocation_is_not_remembered_after_it() {
        let (cache, id) = (KeyCache::default(), KeyId::new());
        let Remembered::Nothing { epoch } = cache.get(id) else { panic!("the cache is empty") };
        cache.forget(id);
        cache.put(epoch, id, Instant::now(), Some(stored()));
        assert!(matches!(cache.get(id), Remembered::Nothing { .. }));
    }

    #[test]
    fn a_key_is_remembered_for_a_second() {
        let (cache, id) = (KeyCache::default(), KeyId::new());
        cache.put(0, id, Instant::now(), Some(stored()));
        assert!(matches!(cache.get(id), Remembered::Key(_)));
        cache.put(0, id, Instant::now(), None);
        assert!(matches!(cache.get(id), Remembered::NoKey));
        cache.put(0, id, Instant::now().checked_sub(REMEMBERED_FOR).unwrap(), Some(stored()));
        assert!(matches!(cache.get(id), Remembered::Nothing { .. }));
    }
}
