//! The words of each call, and how the library reads replies: those of the script itself, and replies that no
//! script sends.

mod autocomplete;
mod errors;
mod exchange;
mod fields;
mod latch;
mod semaphore;
mod wrong;

use super::server;
use crate::scripts::Scripts;
use exchange::Wire;
use std::collections::BTreeSet;

pub fn check(scripts: &Scripts) {
    let (server, loaded) = server(scripts);
    let (keys, seen) = ("", BTreeSet::new());
    let mut wire = Wire { scripts, server, loaded, keys, seen };
    semaphore::one(&mut wire);
    semaphore::with_bounds(&mut wire);
    semaphore::several(&mut wire);
    latch::check(&mut wire);
    autocomplete::check(&mut wire);
    for (script, replies) in scripts.replies() {
        for word in replies.keys() {
            let seen = wire.seen.contains(&(script.clone(), word.clone()));
            assert!(seen, "{script} never replied {word:?}");
        }
    }
    semaphore::grants_that_cannot_be();
    errors::check();
}
