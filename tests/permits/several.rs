//! Promise: permits of several semaphores are acquired together or not at all. No waiter for one of them is
//! overtaken, and no wait is endless.

mod at_once;
mod limits;
mod unlocking;
mod waiting;

use crate::support::raw::Raw;
use crate::support::{Server, eventually};

use luagate::Gate;
use luagate::errors::CallError;
use luagate::scripts::Keys;
use luagate::scripts::semaphore::{self, AskOne, TryAcquireSeveralAnswer};
use std::time::Duration;

const SOON: Duration = Duration::from_secs(10);
const SWORD: &str = "{trade}:sword";
const SHIELD: &str = "{trade}:shield";
const HELMET: &str = "{trade}:helmet";

/// One mutex, used directly through the scripts.
fn raw(server: &Server, name: &str) -> Raw {
    Raw { con: server.connection(), keys: Keys::mutex(&server.prefix, name).unwrap(), limit: 1 }
}

/// Calls the script for mutexes with these keys.
fn ask(raws: &mut [&mut Raw], id: &str, lease_ms: u64) -> Result<TryAcquireSeveralAnswer, CallError> {
    let keys: Vec<Keys> = raws.iter().map(|raw| raw.keys.clone()).collect();
    semaphore::try_acquire_several(&mut raws[0].con, id, &mutexes(&keys, lease_ms))
}

/// One permit of each.
fn mutexes(keys: &[Keys], lease_ms: u64) -> Vec<AskOne<'_>> {
    keys.iter().map(|keys| AskOne { lease_ms, ..AskOne::mutex(keys) }).collect()
}

/// Asserts that none of these has a holder or a waiter.
fn assert_free(gate: &Gate, names: &[&str]) {
    for name in names {
        eventually(&format!("{name} is free"), || {
            let seen = gate.mutex(name).inspect().unwrap();
            ((seen.in_use, seen.waiter_count) == (0, 0)).then_some(())
        });
    }
}
