//! The keys of a server with their values, and its clock.

use crate::reply::{Bytes, WRONG_TYPE};
use crate::sorted_set::SortedSet;
use std::collections::{BTreeMap, VecDeque};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Data {
    Text(Bytes),
    Hash(BTreeMap<Bytes, Bytes>),
    Sorted(SortedSet),
    List(VecDeque<Bytes>),
}

impl Data {
    fn type_name(&self) -> &'static str {
        match self {
            Data::Text(_) => "string",
            Data::Hash(_) => "hash",
            Data::Sorted(_) => "zset",
            Data::List(_) => "list",
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            Data::Text(_) => false,
            Data::Hash(hash) => hash.is_empty(),
            Data::Sorted(set) => set.scores.is_empty(),
            Data::List(list) => list.is_empty(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Entry {
    data: Data,
    /// In ms since 1970.
    expires_at: Option<u64>,
}

impl Entry {
    /// Whether the key exists at this time, in µs.
    fn lives(&self, micros: u64) -> bool {
        self.expires_at.is_none_or(|end| micros / 1_000 <= end)
    }
}

impl From<Data> for Entry {
    fn from(data: Data) -> Entry {
        Entry { data, expires_at: None }
    }
}

/// The content of a server: its keys, their values and expiry times, and its clock. Equal stores behave
/// alike.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Store {
    keys: BTreeMap<Bytes, Entry>,
    micros: u64,
}

impl Store {
    /// The time of its clock, in µs since 1970.
    pub fn micros(&self) -> u64 {
        self.micros
    }

    /// Sets its clock, ahead or back. Keys that have expired by then are removed.
    pub fn set_micros(&mut self, micros: u64) {
        self.micros = micros;
        self.keys.retain(|_, entry| entry.lives(micros));
    }

    /// The names of its keys, ordered by their bytes.
    pub fn key_names(&self) -> impl Iterator<Item = &[u8]> {
        self.keys.keys().map(Vec::as_slice)
    }

    /// The expiry time of a key, in ms since 1970. `None` if the key does not exist, `Some(None)` if it does
    /// not expire.
    pub fn expires_at(&self, key: &[u8]) -> Option<Option<u64>> {
        self.keys.get(key).map(|entry| entry.expires_at)
    }

    /// Copies a key from another store, like a restore. Removes the key, like an eviction, if the other store
    /// does not have it or if it has expired by the time of this store.
    pub fn restore_key(&mut self, key: &[u8], from: &Store) {
        let entry = from.keys.get(key);
        match entry.filter(|entry| entry.lives(self.micros)) {
            Some(entry) => self.keys.insert(key.to_vec(), entry.clone()),
            None => self.keys.remove(key),
        };
    }

    pub(crate) fn type_name(&self, key: &[u8]) -> &'static str {
        let entry = self.keys.get(key);
        entry.map_or("none", |entry| entry.data.type_name())
    }

    pub(crate) fn remove(&mut self, key: &[u8]) -> bool {
        self.keys.remove(key).is_some()
    }

    /// `None` if the key does not exist.
    pub(crate) fn text(&self, key: &[u8]) -> Result<Option<&Bytes>, String> {
        match self.keys.get(key).map(|entry| &entry.data) {
            None => Ok(None),
            Some(Data::Text(text)) => Ok(Some(text)),
            Some(_) => Err(WRONG_TYPE.to_owned()),
        }
    }

    pub(crate) fn set_text(&mut self, key: &[u8], text: Bytes) {
        self.keys.insert(key.to_vec(), Data::Text(text).into());
    }

    /// Returns whether the key exists.
    pub(crate) fn expire_at(&mut self, key: &[u8], ms: u64) -> bool {
        match self.keys.get_mut(key) {
            Some(entry) if ms > self.micros / 1_000 => {
                entry.expires_at = Some(ms);
                true
            }
            _ => self.remove(key),
        }
    }

    /// Returns whether the key had an expiry time.
    pub(crate) fn persist(&mut self, key: &[u8]) -> bool {
        let entry = self.keys.get_mut(key);
        entry.is_some_and(|entry| entry.expires_at.take().is_some())
    }
}

/// How to read and to change a collection. A key that does not exist reads as an empty collection. For a
/// change, it is created; a collection that is empty after the change is removed.
macro_rules! collection {
    ($read:ident, $change:ident, $kind:ident, $type:ty) => {
        impl Store {
            pub(crate) fn $read(&self, key: &[u8]) -> Result<&$type, String> {
                static EMPTY: $type = <$type>::new();
                match self.keys.get(key).map(|entry| &entry.data) {
                    None => Ok(&EMPTY),
                    Some(Data::$kind(data)) => Ok(data),
                    Some(_) => Err(WRONG_TYPE.to_owned()),
                }
            }

            pub(crate) fn $change<T>(
                &mut self,
                key: &[u8],
                change: impl FnOnce(&mut $type) -> T,
            ) -> Result<T, String> {
                let entry = self.keys.entry(key.to_vec());
                let entry = entry.or_insert_with(|| Data::$kind(<$type>::new()).into());
                let Data::$kind(data) = &mut entry.data else {
                    return Err(WRONG_TYPE.to_owned());
                };
                let result = change(data);
                if entry.data.is_empty() {
                    self.keys.remove(key);
                }
                Ok(result)
            }
        }
    };
}

collection!(hash, change_hash, Hash, BTreeMap<Bytes, Bytes>);
collection!(sorted_set, change_sorted_set, Sorted, SortedSet);
collection!(list, change_list, List, VecDeque<Bytes>);
