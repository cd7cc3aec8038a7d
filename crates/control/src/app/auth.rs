//! Who is asking. A key's record is remembered for a second, so that a burst of requests asks the database once;
//! that second is also the longest that a key revoked on another replica is still accepted here. On this one
//! revocation is immediate. A key's end is exact everywhere, and a new secret is good everywhere at once: one that
//! does not match what is remembered is compared with what is stored.

use std::{
    collections::{HashMap, HashSet},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use aws_lc_rs::digest::{SHA256, digest};
use space_api::{keys::ApiKey, scopes::Scope};
use space_types::{KeyId, TenantId};
use subtle::ConstantTimeEq as _;

use super::{App, AppError};
use crate::{
    grants::{Grants, Lack, Reach},
    store::{StoreError, keys::StoredKey},
};

const REMEMBERED_FOR: Duration = Duration::from_secs(1);
/// Beyond this many the cache starts anew.
const MOST_KEYS: usize = 10_000;

/// Who makes a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Caller {
    pub(crate) tenant_id: TenantId,
    pub(crate) key_id: KeyId,
    pub(crate) grants: Grants,
}

impl Caller {
    pub(crate) fn require_admin(&self) -> Result<(), AppError> {
        if self.grants.is_admin() { Ok(()) } else { Err(Lack::Admin.into()) }
    }

    pub(crate) fn reach(&self) -> Reach {
        self.grants.reach()
    }

    pub(crate) fn require(&self, scope: Scope) -> Result<(), AppError> {
        Ok(self.grants.require(scope)?)
    }
}

#[derive(Debug, Default)]
struct Entries {
    /// Grows with every change of a key: what was read before one must not be remembered after it.
    epoch: u64,
    keys: HashMap<KeyId, (Instant, Option<StoredKey>)>,
}

/// What the cache says of a key's id.
#[derive(Debug)]
enum Remembered {
    Key(StoredKey),
    /// There is none, or it is revoked.
    NoKey,
    Nothing,
}

#[derive(Debug, Default)]
pub(crate) struct KeyCache(Mutex<Entries>);

impl KeyCache {
    fn get(&self, id: KeyId) -> Remembered {
        let entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match entries.keys.get(&id).filter(|(read_at, _)| read_at.elapsed() < REMEMBERED_FOR) {
            Some((_, Some(key))) => Remembered::Key(key.clone()),
            Some((_, None)) => Remembered::NoKey,
            None => Remembered::Nothing,
        }
    }

    fn epoch(&self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).epoch
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

    /// To be called after the commit that revoked the key or changed its secret.
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

/// The keys that were used since the last time this was written down. In memory: a request must not wait for it.
#[derive(Debug, Default)]
pub(crate) struct KeyUse(Mutex<HashSet<KeyId>>);

impl KeyUse {
    fn note(&self, id: KeyId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(id);
    }

    fn take(&self) -> Vec<KeyId> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner)).into_iter().collect()
    }
}

impl StoredKey {
    /// Compares with every secret that is valid, always in the same time.
    fn accepts(&self, hash: &[u8; 32]) -> bool {
        let now = Instant::now();
        let current = hash.ct_eq(&self.secret_hash);
        let former = self.former.filter(|(_, until)| now < *until);
        let former = hash.ct_eq(&former.map_or(self.secret_hash, |(hash, _)| hash));
        bool::from(current | former) && self.ends.is_none_or(|ends| now < ends)
    }
}

impl App {
    /// The caller that a key belongs to. Wrong, expired, revoked and unknown keys can't be told apart.
    pub(crate) async fn authenticate(&self, text: &str) -> Result<Caller, AppError> {
        let key: ApiKey = text.parse().map_err(|_unparsed| AppError::Unauthorized)?;
        let hash = hash_secret(&key.secret);
        let stored = match self.keys.get(key.id) {
            Remembered::Key(stored) if stored.accepts(&hash) => Some(stored),
            Remembered::NoKey => None,
            // Another replica may have changed the secret since.
            Remembered::Key(_) | Remembered::Nothing => self.key_read(key.id).await?,
        };
        let stored = stored.filter(|stored| stored.accepts(&hash)).ok_or(AppError::Unauthorized)?;
        self.key_use.note(key.id);
        Ok(Caller { tenant_id: stored.grants.tenant_id, key_id: key.id, grants: stored.grants })
    }

    /// Whether requests with this key are still accepted, whichever its secret.
    pub(crate) async fn key_is_valid(&self, id: KeyId) -> Result<bool, StoreError> {
        let stored = match self.keys.get(id) {
            Remembered::Key(stored) => Some(stored),
            Remembered::NoKey => None,
            Remembered::Nothing => self.key_read(id).await?,
        };
        Ok(stored.is_some_and(|stored| stored.ends.is_none_or(|ends| Instant::now() < ends)))
    }

    async fn key_read(&self, id: KeyId) -> Result<Option<StoredKey>, StoreError> {
        let (epoch, read_at) = (self.keys.epoch(), Instant::now());
        let stored = self.store.key_find(id, read_at).await?;
        self.keys.put(epoch, id, read_at, stored.clone());
        Ok(stored)
    }

    /// Writes down which keys were used. What a crash loses is used again.
    pub(crate) async fn key_use_flush(&self) -> Result<(), StoreError> {
        let used = self.key_use.take();
        if used.is_empty() { Ok(()) } else { self.store.key_used(&used).await }
    }
}

#[cfg(test)]
mod tests {
    use space_api::{keys::Role, scopes::ScopeSet};

    use super::*;

    fn stored() -> StoredKey {
        let grants = Grants {
            tenant_id: TenantId::new(),
            project_id: None,
            role: Role::Member,
            scopes: ScopeSet::all(),
            expires_at: None,
        };
        StoredKey { grants, secret_hash: [0; 32], former: None, ends: None }
    }

    #[test]
    fn two_secrets_are_good_while_a_rotation_lasts_and_none_after_the_keys_end() {
        let past = Instant::now().checked_sub(Duration::from_millis(1)).unwrap();
        let later = Instant::now() + Duration::from_mins(1);
        let accepts = |key: &StoredKey| [0, 1, 2].map(|byte| key.accepts(&[byte; 32]));
        assert_eq!(accepts(&stored()), [true, false, false]);
        let rotated = StoredKey { former: Some(([1; 32], later)), ..stored() };
        assert_eq!(accepts(&rotated), [true, true, false]);
        assert_eq!(accepts(&StoredKey { former: Some(([1; 32], past)), ..stored() }), [true, false, false]);
        assert_eq!(accepts(&StoredKey { ends: Some(later), ..rotated.clone() }), [true, true, false]);
        assert_eq!(accepts(&StoredKey { ends: Some(past), ..rotated }), [false; 3]);
    }

    #[test]
    fn what_was_read_before_a_revocation_is_not_remembered_after_it() {
        let (cache, id) = (KeyCache::default(), KeyId::new());
        let epoch = cache.epoch();
        cache.forget(id);
        cache.put(epoch, id, Instant::now(), Some(stored()));
        assert!(matches!(cache.get(id), Remembered::Nothing));
    }

    #[test]
    fn a_key_is_remembered_for_a_second() {
        let (cache, id) = (KeyCache::default(), KeyId::new());
        cache.put(0, id, Instant::now(), Some(stored()));
        assert!(matches!(cache.get(id), Remembered::Key(_)));
        cache.put(0, id, Instant::now(), None);
        assert!(matches!(cache.get(id), Remembered::NoKey));
        cache.put(0, id, Instant::now().checked_sub(REMEMBERED_FOR).unwrap(), Some(stored()));
        assert!(matches!(cache.get(id), Remembered::Nothing));
    }
}
