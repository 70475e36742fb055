//! The settings that all locks have: those of the semaphores that they are.

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
            pub fn on_lost(
                self,
                on_lost: impl Fn(&crate::errors::Lost) + Send + Sync + 'static,
            ) -> Self {
                let on_lost: $crate::lease::holding::OnLost = std::sync::Arc::new(on_lost);
                self.with(|semaphore| semaphore.told_by(on_lost.clone()))
            }
        }
    };
}
pub(crate) use settings;
