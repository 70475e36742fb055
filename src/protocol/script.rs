//! The scripts of `lua/dist/`, under their names in the manifest.

use super::resp;
use once_cell::sync::Lazy;

/// A script: its text, and the words of a command that refer to it by its SHA-1.
pub struct Script {
    pub(super) text: &'static str,
    pub(super) by_sha1: Vec<u8>,
}

/// A script that is hashed at its first use.
pub type LazyScript = Lazy<Script>;

macro_rules! scripts {
    ($($name:ident $file:literal)*) => {
        $(pub(super) static $name: LazyScript = Lazy::new(|| {
            let text = include_str!(concat!("../../lua/dist/", $file, ".lua")); // written by `./dev manifest`
            let sha1 = sha1_smol::Sha1::from(text).digest().to_string();
            let mut by_sha1 = Vec::new();
            resp::word(&mut by_sha1, b"EVALSHA");
            resp::word(&mut by_sha1, sha1.as_bytes());
            Script { text, by_sha1 }
        });)*
    };
}

scripts! {
    ACQUIRE "semaphore/acquire"
    RELEASE "semaphore/release"
    REFRESH "semaphore/refresh"
    LOOKUP "semaphore/lookup"
    INSPECT "semaphore/inspect"
    RESIZE "semaphore/resize"
    TRY_ACQUIRE_SEVERAL "semaphore/try_acquire_several"
    COUNT_DOWN "latch/count_down"
    WAIT "latch/wait"
    COUNT "latch/count"
    DELETE "latch/delete"
    RECENT_ADD "autocomplete/recent_add"
    RECENT_REMOVE "autocomplete/recent_remove"
    RECENT_MATCH "autocomplete/recent_match"
    PREFIX_ADD "autocomplete/prefix_add"
    PREFIX_REMOVE "autocomplete/prefix_remove"
    PREFIX_MATCH "autocomplete/prefix_match"
}
