//! A bounded map that forgets what was not used lately: a young generation, and an old one from which what is used
//! goes back. When the young one is half of the bound, it becomes the old one, and the old one is dropped; so no flood
//! of names costs more than its own insertions, and what is in use survives it.

use std::{collections::HashMap, hash::Hash, mem};

pub(super) struct Generations<K, V> {
    young: HashMap<K, V>,
    old: HashMap<K, V>,
    most: usize,
}

impl<K: Hash + Eq, V: Default + Clone> Generations<K, V> {
    /// For at most `most` entries.
    pub(super) fn new(most: usize) -> Self {
        Self { young: HashMap::new(), old: HashMap::new(), most }
    }

    pub(super) fn get_or_default(&mut self, key: K) -> V {
        if let Some(value) = self.young.get(&key) {
            return value.clone();
        }
        let value = self.old.remove(&key).unwrap_or_default();
        if self.young.len() >= self.most / 2 {
            self.old = mem::take(&mut self.young);
        }
        self.young.insert(key, value.clone());
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_survives_a_flood_and_the_bound_holds() {
        let mut map: Generations<u32, std::sync::Arc<u32>> = Generations::new(10);
        let used = map.get_or_default(0);
        for key in 1..1000 {
            map.get_or_default(key);
            assert!(std::sync::Arc::ptr_eq(&used, &map.get_or_default(0)));
            assert!(map.young.len() + map.old.len() <= 10);
        }
        assert!(!map.young.contains_key(&1) && !map.old.contains_key(&1));
    }
}
