//! Runs the cases of `lua/conformance/` (format: see its README) on a server in this process or on a real
//! one.

mod call;
mod cases;
pub mod errors;
mod host;
mod messages;
mod steps;

use crate::ledger::{Check, Violation, broken};
use crate::pattern::Bindings;
use crate::scripts::{Replies, Scripts};
pub use cases::{Case, cases, signed};
pub use host::{Host, Memory};
use std::collections::BTreeMap;
use steps::Run;

/// The scripts, their keys and replies, as a test host needs them.
pub struct Suite {
    sha1s: BTreeMap<String, String>,
    keys: BTreeMap<String, Vec<String>>,
    replies: BTreeMap<String, Replies>,
}

/// Runs every case on a server in this process.
///
/// # Errors
/// The difference that the first failing case found.
pub fn run_all(scripts: &Scripts, cases: &[Case]) -> Check {
    let mut memory = Memory::default();
    let suite = Suite::load(scripts, &mut memory).map_err(|text| Violation { rule: "conformance", text })?;
    for (place, case) in cases.iter().enumerate() {
        suite.run(&mut memory, case, &format!("case:{place}"))?;
    }
    Ok(())
}

/// Runs one case on a server in this process.
///
/// # Errors
/// The difference from the case.
pub fn run(scripts: &Scripts, case: &Case) -> Check {
    run_all(scripts, std::slice::from_ref(case))
}

impl Suite {
    /// # Errors
    /// When a script is not valid Lua.
    pub fn load(scripts: &Scripts, host: &mut dyn Host) -> Result<Suite, String> {
        let loaded = scripts.load(host.connection())?;
        Ok(Suite {
            sha1s: loaded.names().clone(),
            keys: scripts.keys().clone(),
            replies: scripts.replies().clone(),
        })
    }

    /// Runs a case. All its keys and channels begin with `prefix`, which must be unique to this run.
    ///
    /// # Errors
    /// The difference from the case.
    pub fn run(&self, host: &mut dyn Host, case: &Case, prefix: &str) -> Check {
        host.begin();
        let mut run = Run { suite: self, host, bindings: Bindings::new(prefix), inboxes: BTreeMap::new() };
        let mut result = run.steps(&case.steps);
        if result.is_ok() {
            result = run.all_silent();
        }
        let inboxes: Vec<String> = run.inboxes.keys().cloned().collect();
        for channel in inboxes {
            run.host.unsubscribe(&channel);
        }
        run.host.set_full(false);
        result.or_else(|text| broken("conformance", format!("{}: {text}", case.name)))
    }
}
