//! What all locks share: their settings, which are those of a semaphore, and their guards, each of which is a permit under the
//! verbs of locking.

use crate::error::{CallError, try_again};

/// Settings of a lock. The type has a function `with`, which lets each of its semaphores go through another function.
macro_rules! settings {
    ($lock:ident) => {
        impl $lock {
            /// How long it is held unless refreshed: 1 ms to 100 years. It is then not renewed unless
            /// [`auto_renew`](Self::auto_renew) asks for that.
            #[must_use]
            pub fn lease(self, lease: std::time::Duration) -> Self {
                self.with(|semaphore| semaphore.lease(lease))
            }

            /// Renews it at a third of its lease while the guard lives; see
            /// [`Semaphore::auto_renew`](crate::Semaphore::auto_renew).
            #[must_use]
            pub fn auto_renew(self) -> Self {
                self.with(|semaphore| semaphore.auto_renew())
            }

            /// Holds it without an end; see [`Semaphore::permanent`](crate::Semaphore::permanent).
            #[must_use]
            pub fn permanent(self) -> Self {
                self.with(|semaphore| semaphore.permanent())
            }

            /// Waits in line only while fewer than `n` wait; see [`Semaphore::max_waiting`](crate::Semaphore::max_waiting).
            #[must_use]
            pub fn max_waiting(self, n: u32) -> Self {
                self.with(|semaphore| semaphore.max_waiting(n))
            }

            /// Minimum hold: released earlier, it is in use until `least` after its grant; see
            /// [`Semaphore::at_least`](crate::Semaphore::at_least).
            #[must_use]
            pub fn at_least(self, least: std::time::Duration) -> Self {
                self.with(|semaphore| semaphore.at_least(least))
            }

            /// A label in front of each id; see [`Semaphore::label`](crate::Semaphore::label).
            #[must_use]
            pub fn label(self, label: &str) -> Self {
                self.with(|semaphore| semaphore.label(label))
            }

            /// Lets `cancel` end the waits, from another thread or at a time. Use one [`Cancel`](crate::Cancel) for each
            /// request or job, since it stays cancelled.
            #[must_use]
            pub fn cancelled_by(self, cancel: &crate::Cancel) -> Self {
                self.with(|semaphore| semaphore.cancelled_by(cancel))
            }

            /// Calls `on_lost` when it turns out to be lost while it is held; see
            /// [`Semaphore::on_lost`](crate::Semaphore::on_lost).
            #[must_use]
            pub fn on_lost(self, on_lost: impl Fn(&crate::errors::Lost) + Send + Sync + 'static) -> Self {
                let on_lost: $crate::lease::permits::OnLost = std::sync::Arc::new(on_lost);
                self.with(|semaphore| semaphore.told_by(on_lost.clone()))
            }
        }
    };
}
pub(crate) use settings;

/// What a lock has that is one semaphore.
macro_rules! lock {
    ($lock:ident) => {
        impl $lock {
            pub(crate) fn new(semaphore: $crate::Semaphore) -> $lock {
                $lock { semaphore }
            }

            fn with(self, set: impl Fn($crate::Semaphore) -> $crate::Semaphore) -> $lock {
                $lock::new(set(self.semaphore))
            }

            /// An identity of the application's own; see [`Semaphore::id`](crate::Semaphore::id).
            #[must_use]
            pub fn id(self, id: &str) -> $lock {
                self.with(|semaphore| semaphore.id(id))
            }

            /// The name.
            pub fn name(&self) -> &str {
                self.semaphore.name()
            }

            /// Takes the lock, or the place in line, away from `id`; see [`Semaphore::revoke`](crate::Semaphore::revoke).
            ///
            /// # Errors
            /// As [`Semaphore::revoke`](crate::Semaphore::revoke).
            pub fn revoke(&self, id: &str) -> Result<$crate::Revoked, $crate::errors::CallError> {
                self.semaphore.revoke(id)
            }
        }

        impl std::fmt::Debug for $lock {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($lock)).field("name", &self.name()).finish_non_exhaustive()
            }
        }
    };
}
pub(crate) use lock;

/// A guard around one [`Permit`](crate::Permit).
macro_rules! guard {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name(pub(crate) $crate::Permit);

        impl $name {
            /// Unlocks. Blocks for one round trip; whoever is first in line has the lock when this returns.
            ///
            /// # Errors
            /// [`UnlockError`](crate::errors::UnlockError) when the server did not confirm: it has the guard, to try again with.
            pub fn unlock(self) -> Result<$crate::Released, $crate::errors::UnlockError<$name>> {
                self.0.release().map_err(|error| {
                    let (permit, error) = error.into_parts();
                    $crate::errors::UnlockError::new($name(permit), error)
                })
            }

            /// Lets go without unlocking, and returns the id, with which another process takes over; see
            /// [`Permit::into_id`](crate::Permit::into_id).
            pub fn into_id(self) -> String {
                self.0.into_id()
            }
        }

        impl std::ops::Deref for $name {
            type Target = $crate::Permit;

            fn deref(&self) -> &$crate::Permit {
                &self.0
            }
        }

        impl AsRef<$crate::Permit> for $name {
            fn as_ref(&self) -> &$crate::Permit {
                &self.0
            }
        }

        impl From<$name> for $crate::Permit {
            fn from(guard: $name) -> $crate::Permit {
                guard.0
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}
pub(crate) use guard;

/// An unlock that could not be confirmed. It has the guard, so that it can be tried again; dropping it unlocks in the
/// background.
#[derive(Debug)]
pub struct UnlockError<G> {
    guard: Box<G>,
    error: CallError,
}

impl<G> UnlockError<G> {
    pub(crate) fn new(guard: G, error: CallError) -> UnlockError<G> {
        UnlockError { guard: Box::new(guard), error }
    }

    /// The guard, still to be unlocked.
    #[must_use = "dropping the guard unlocks in the background"]
    pub fn into_guard(self) -> G {
        *self.guard
    }

    /// Why it could not be unlocked.
    pub fn error(&self) -> &CallError {
        &self.error
    }
}

try_again!(UnlockError<G> "the unlock is not confirmed" "Call `into_guard` and try again");
