//! The user and the password of a connection, which a function of the program returns.

use luagate_core::failure::Failure;
use luagate_core::kind::FailureKind;
use std::error::Error;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A user and a password, as the function of [`GateBuilder::credentials`](crate::GateBuilder::credentials)
/// returns them. The `Debug` output does not contain the password.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    pub(super) user: Option<String>,
    pub(super) password: String,
}

impl Credentials {
    /// A password for the user of the URL. If the URL names none, it is the password of the default user.
    pub fn password(password: impl Into<String>) -> Credentials {
        Credentials { user: None, password: password.into() }
    }

    /// A user, whatever the URL names, and its password.
    pub fn user(user: impl Into<String>, password: impl Into<String>) -> Credentials {
        Credentials { user: Some(user.into()), password: password.into() }
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("user", &self.user).finish_non_exhaustive()
    }
}

/// The result of the function.
type Asked = Result<Credentials, Box<dyn Error + Send + Sync>>;

/// The function of the program.
#[derive(Clone)]
pub(crate) struct Source {
    function: Arc<dyn Fn() -> Asked + Send + Sync>,
    /// How many calls of it run.
    running: Arc<AtomicUsize>,
}

impl Source {
    pub(crate) fn new(function: impl Fn() -> Asked + Send + Sync + 'static) -> Source {
        Source { function: Arc::new(function), running: Arc::default() }
    }

    /// Calls the function of the program, which may block, fail or panic. The caller holds no lock.
    pub(super) fn ask(&self) -> Result<Credentials, Failure> {
        self.running.fetch_add(1, Ordering::Relaxed);
        let asked = catch_unwind(AssertUnwindSafe(|| (self.function)()));
        self.running.fetch_sub(1, Ordering::Relaxed);
        let failed = match asked {
            Ok(Ok(credentials)) => return Ok(credentials),
            Ok(Err(error)) => format!("the function for credentials failed: {error}"),
            Err(_) => "the function for credentials panicked".to_owned(), // the text of a panic may contain the password
        };
        Err(Failure::new(FailureKind::Authentication, failed))
    }

    /// Whether a connection waits for the function.
    pub(super) fn is_running(&self) -> bool {
        self.running.load(Ordering::Relaxed) > 0
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a function")
    }
}
