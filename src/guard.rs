//! Code that all locks share. Their settings are those of a semaphore. Their guards wrap a permit, with the verbs of
//! locking.

/// Settings of a lock. The type must have a function `with`, which applies a function to each of its semaphores.
macro_rules! settings {
    ($lock:ident) => {
        impl $lock {
            /// How long a grant is valid unless it is refreshed. See [`Semaphore::lease`](crate::Semaphore::lease).
            #[must_use]
            pub fn lease(self, lease: impl Into<crate::Lease>) -> Self {
                let lease = lease.into();
                self.with(|semaphore| semaphore.lease(lease))
            }

            /// Joins the line only while fewer than `n` wait. See
            /// [`Semaphore::max_waiting`](crate::Semaphore::max_waiting).
            #[must_use]
            pub fn max_waiting(self, n: u32) -> Self {
                self.with(|semaphore| semaphore.max_waiting(n))
            }

            /// Minimum hold: after an earlier release, the grant stays in use until `least` after its start. See
            /// [`Semaphore::at_least`](crate::Semaphore::at_least).
            #[must_use]
            pub fn at_least(self, least: std::time::Duration) -> Self {
                self.with(|semaphore| semaphore.at_least(least))
            }

            /// A label at the start of each id. See [`Semaphore::label`](crate::Semaphore::label).
            #[must_use]
            pub fn label(self, label: &str) -> Self {
                self.with(|semaphore| semaphore.label(label))
            }

            /// Lets `cancel` end the waits, from another thread or task, or at a deadline. A [`Cancel`](crate::Cancel) stays
            /// cancelled, so use one for each request or job.
            #[must_use]
            pub fn cancelled_by(self, cancel: &crate::Cancel) -> Self {
                self.with(|semaphore| semaphore.cancelled_by(cancel))
            }

            /// Calls `on_lost` when a grant is lost while it is held. See
            /// [`Semaphore::on_lost`](crate::Semaphore::on_lost).
            #[must_use]
            pub fn on_lost(self, on_lost: impl Fn(&crate::errors::Lost) + Send + Sync + 'static) -> Self {
                let on_lost = std::sync::Arc::new(on_lost);
                self.with(|semaphore| {
                    let on_lost = on_lost.clone();
                    semaphore.on_lost(move |lost| on_lost(lost))
                })
            }
        }
    };
}
pub(crate) use settings;

/// Functions of a lock that consists of one semaphore.
macro_rules! lock {
    ($lock:ident) => {
        impl $lock {
            pub(crate) fn new(semaphore: Semaphore) -> $lock {
                $lock { semaphore }
            }

            fn with(self, set: impl Fn(Semaphore) -> Semaphore) -> $lock {
                $lock::new(set(self.semaphore))
            }

            /// An id chosen by the application. See [`Semaphore::id`](crate::Semaphore::id).
            #[must_use]
            pub fn id(self, id: &str) -> $lock {
                self.with(|semaphore| semaphore.id(id))
            }

            /// The name.
            pub fn name(&self) -> &str {
                self.semaphore.name()
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

/// A guard that wraps one [`Permit`](crate::Permit).
macro_rules! guard {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name(pub(crate) Permit);

        impl $name {
            /// Drops the guard without unlocking, and returns its id. Another process can take over with the id. See
            /// [`Permit::into_id`](crate::Permit::into_id).
            pub fn into_id(self) -> String {
                self.0.into_id()
            }
        }

        impl std::ops::Deref for $name {
            type Target = Permit;

            fn deref(&self) -> &Permit {
                &self.0
            }
        }

        impl AsRef<Permit> for $name {
            fn as_ref(&self) -> &Permit {
                &self.0
            }
        }

        impl From<$name> for Permit {
            fn from(guard: $name) -> Permit {
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

/// The functions of locks and guards that take a round trip.
macro_rules! unlocking {
    ($lock:ident: $($guard:ident)*) => {
        impl $lock {
            /// Takes the lock, or the place in line, away from `id`. See
            /// [`Semaphore::revoke`](crate::Semaphore::revoke).
            ///
            /// # Errors
            /// As [`Semaphore::revoke`](crate::Semaphore::revoke).
            pub fn revoke(&self, id: &str) -> Result<$crate::Revoked, $crate::errors::CallError> {
                self.semaphore.revoke(id)
            }

            /// As [`revoke`](Self::revoke), without blocking.
            ///
            /// # Errors
            /// As [`revoke`](Self::revoke).
            ///
            /// # Cancel safety
            /// If this is dropped, the server may have run the call or not. It can be repeated.
            pub async fn revoke_async(&self, id: &str) -> Result<$crate::Revoked, $crate::errors::CallError> {
                self.semaphore.revoke_async(id).await
            }
        }

        $(impl $guard {
            /// Unlocks. Blocks for one round trip. When it returns, the server has granted the lock to the first
            /// waiter.
            ///
            /// # Errors
            /// [`ReleaseError`](crate::errors::ReleaseError) if the server did not confirm the release. It contains the
            /// guard, so that the caller can try again.
            pub fn unlock(self) -> Result<$crate::Released, $crate::errors::ReleaseError<$guard>> {
                self.0.release().map_err(|error| error.map($guard))
            }

            /// As [`unlock`](Self::unlock), without blocking.
            ///
            /// # Errors
            /// As [`unlock`](Self::unlock).
            ///
            /// # Cancel safety
            /// If this is dropped, the lock is released in the background.
            pub async fn unlock_async(self) -> Result<$crate::Released, $crate::errors::ReleaseError<$guard>> {
                self.0.release_async().await.map_err(|error| error.map($guard))
            }
        })*
    };
}
pub(crate) use unlocking;
