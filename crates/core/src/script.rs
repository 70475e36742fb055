//! The scripts. Their texts come from the program that uses this crate.

use crate::resp;
use once_cell::sync::OnceCell;
use std::fmt;

/// The name of a script in the manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScriptName {
    Acquire,
    Release,
    Refresh,
    Lookup,
    Inspect,
    Resize,
    TryAcquireSeveral,
    CountDown,
    Wait,
    Count,
    Delete,
    RecentAdd,
    RecentRemove,
    RecentMatch,
    PrefixAdd,
    PrefixRemove,
    PrefixMatch,
}

use ScriptName::*;

impl ScriptName {
    pub const ALL: [ScriptName; 17] = [
        Acquire,
        Release,
        Refresh,
        Lookup,
        Inspect,
        Resize,
        TryAcquireSeveral,
        CountDown,
        Wait,
        Count,
        Delete,
        RecentAdd,
        RecentRemove,
        RecentMatch,
        PrefixAdd,
        PrefixRemove,
        PrefixMatch,
    ];
}

/// A script: its text, and the words of a command that refer to it by its SHA-1.
pub struct Script {
    pub(crate) text: &'static str,
    by_sha1: OnceCell<Vec<u8>>,
}

impl Script {
    /// Hashed at its first use.
    pub(crate) fn by_sha1(&self) -> &[u8] {
        self.by_sha1.get_or_init(|| {
            let sha1 = sha1_smol::Sha1::from(self.text).digest().to_string();
            let mut by_sha1 = Vec::new();
            resp::word(&mut by_sha1, b"EVALSHA");
            resp::word(&mut by_sha1, sha1.as_bytes());
            by_sha1
        })
    }
}

/// All scripts.
pub struct Scripts([Script; ScriptName::ALL.len()]);

impl fmt::Debug for Scripts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scripts").finish_non_exhaustive()
    }
}

impl Scripts {
    pub fn new(text: impl Fn(ScriptName) -> &'static str) -> Scripts {
        Scripts(ScriptName::ALL.map(|name| Script { text: text(name), by_sha1: OnceCell::new() }))
    }
}

impl std::ops::Index<ScriptName> for Scripts {
    type Output = Script;

    #[allow(clippy::indexing_slicing, reason = "there is one for each name")]
    fn index(&self, name: ScriptName) -> &Script {
        &self.0[name as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_named_by_the_sha1_of_its_text() {
        let scripts = Scripts::new(|_| "return 1");
        // printf 'return 1' | sha1sum
        let words = b"$7\r\nEVALSHA\r\n$40\r\ne0e1f9fabfc9d4800c877a703b823ac0578ff8db\r\n";
        assert_eq!(scripts[ScriptName::Acquire].by_sha1(), words);
    }
}
