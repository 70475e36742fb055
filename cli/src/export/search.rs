//! Searches the names on a server, one step at a time, so that the caller can pause in between.

use luagate::Master;
use luagate::inspection::{Kind, Name};
use luagate::redis;
use luagate::scripts::Keys;

/// How many keys the server looks at in one step.
const STEP: usize = 1_000;

/// One step: the names in it, and where the next one begins. 0: that was the last one.
pub fn step(master: &Master, prefix: &str, cursor: u64) -> Result<(u64, Vec<Name>), String> {
    let mut scan = redis::cmd("SCAN");
    scan.arg(cursor).arg("MATCH").arg(format!("{prefix}:*{{*")).arg("COUNT").arg(STEP);
    let reply = master.command(&scan).map_err(|error| error.to_string())?;
    let (next, keys): (u64, Vec<Vec<u8>>) = redis::from_redis_value(reply).map_err(|error| error.to_string())?;
    let names = keys.iter().filter_map(|key| name_of(prefix, std::str::from_utf8(key).ok()?));
    Ok((next, names.collect()))
}

/// The name in the first key of a semaphore, mutex or reader-writer lock. `None`: it is another key.
fn name_of(prefix: &str, key: &str) -> Option<Name> {
    let (kind, tagged) = key.strip_prefix(prefix)?.strip_prefix(':')?.split_once(':')?;
    let kind = Kind::ALL.into_iter().find(|known| known.as_str() == kind)?;
    // `{name}`, or `{group}:name`, which is the name itself.
    let name = tagged.strip_prefix('{').and_then(|name| name.strip_suffix('}')).unwrap_or(tagged);
    let keys = match kind {
        Kind::Semaphore => Keys::semaphore(prefix, name),
        Kind::Mutex => Keys::mutex(prefix, name),
        Kind::RwLock => Keys::rwlock(prefix, name),
        _ => return None,
    };
    let [first, ..] = keys.as_ref().ok()?.names();
    (first == key).then(|| Name { name: name.to_owned(), kind })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_first_keys_of_valid_names_are_names() {
        let found = |key: &str| name_of("shop:1", key).map(|name| name.to_string());
        for (key, expected) in [
            ("shop:1:semaphore:{market:17}", Some("semaphore market:17")),
            ("shop:1:mutex:{a}", Some("mutex a")),
            ("shop:1:rwlock:{shop}:market", Some("rwlock {shop}:market")),
            ("shop:1:semaphore.holders:{a}", None),
            ("shop:1:latch:{a}", None),
            ("shop:1:semaphore:a", None),
            ("shop:1:semaphore:{a", None),
            ("shop:1:semaphore:{}", None),
            ("shop:1:semaphore:{a b}", None),
            ("shop:1:semaphore:{{a}}", None),
            ("shop:1:2:semaphore:{a}", None),
            ("shop:semaphore:{a}", None),
            ("", None),
        ] {
            assert_eq!(found(key).as_deref(), expected, "{key}");
        }
    }
}
