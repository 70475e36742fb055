//! Spans and events for the crate `tracing`: a span for each operation, an event for other occurrences. This
//! is the only file that uses the feature `tracing`. Without it these functions do nothing.
//!
//! A subscriber is code of the program. In the caller's thread it gets only the span of an operation.
//! Everything else is reported in the thread of [`Foreign`] for events.
//!
//! [`Foreign`]: crate::foreign::Foreign

#[cfg(not(feature = "tracing"))]
pub(crate) use disabled::{Span, lost, panicked, reconnected, renewed, unrenewed};
#[cfg(feature = "tracing")]
pub(crate) use enabled::{Span, lost, panicked, reconnected, renewed, unrenewed};

/// Each operation: the name of its span, and the outcome of a success in `Span::run`.
macro_rules! operations {
    ($($operation:ident $name:literal $success:literal,)*) => {
        /// An operation that can have a span: `Operation::Adopt.on(keys).run(...)` runs it in one.
        #[derive(Clone, Copy)]
        pub(crate) enum Operation {
            $($operation,)*
        }

        #[cfg(feature = "tracing")]
        impl Operation {
            fn span<'a>(self, keys: impl Iterator<Item = &'a str> + Clone) -> tracing::Span {
                match self {
                    $(Operation::$operation => tracing::debug_span!(
                        target: "luagate", $name, kind = enabled::kind(keys.clone()), name = %enabled::SpanNames(keys.clone()),
                        outcome = tracing::field::Empty, waited_ms = tracing::field::Empty,
                    ),)*
                }
            }

            fn success(self) -> &'static str {
                match self {
                    $(Operation::$operation => $success,)*
                }
            }
        }
    };
}

operations! {
    TryAcquire "try_acquire" "granted",
    Acquire "acquire" "granted",
    TryAcquireSeveral "try_acquire_several" "granted",
    AcquireSeveral "acquire_several" "granted",
    Adopt "adopt" "adopted",
    Refresh "refresh" "refreshed",
    Release "release" "released",
    ReleaseSome "release_some" "released",
    Revoke "revoke" "released",
    Resize "resize" "resized",
    UnpinLimit "unpin_limit" "done",
    Inspect "inspect" "done",
    CountDown "count_down" "counted",
    Left "left" "done",
    Wait "wait" "open",
    Delete "delete" "done",
    RecentAdd "recent_add" "done",
    RecentRemove "recent_remove" "done",
    RecentMatch "recent_match" "done",
    PrefixAdd "prefix_add" "done",
    PrefixRemove "prefix_remove" "done",
    PrefixMatch "prefix_match" "done",
}

#[cfg(not(feature = "tracing"))]
mod disabled {
    use super::Operation;
    use crate::error::CallError;
    use crate::foreign::Foreign;
    use luagate_core::keys::Keys;

    pub(crate) struct Span;

    impl Operation {
        pub(crate) fn on<'a>(self, _keys: impl IntoIterator<Item = &'a str>) -> Span {
            Span
        }
    }

    impl Span {
        /// The operation has ended, for an operation for which nobody waits.
        pub(crate) fn ended(self, _foreign: &Foreign, _outcome: &'static str) {}

        // An `async fn` would contain `work` twice: as an argument, and as what it waits for.
        pub(crate) fn run<W: Future>(self, work: W) -> W {
            work
        }

        pub(crate) fn tell<W: Future>(self, work: W) -> W {
            work
        }
    }

    pub(crate) fn lost(_foreign: &Foreign, _keys: &Keys, _fence: u64) {}

    pub(crate) fn renewed(_foreign: &Foreign, _keys: &Keys, _fence: u64) {}

    pub(crate) fn unrenewed(_foreign: &Foreign, _keys: &Keys, _permits: usize, _error: CallError) {}

    pub(crate) fn reconnected(_foreign: &Foreign, _what: &'static str, _address: String) {}

    pub(crate) fn panicked(_thread: &'static str) {}
}

#[cfg(feature = "tracing")]
mod enabled {
    use super::Operation;
    use crate::clock::{machine_now, since};
    use crate::error::CallError;
    use crate::foreign::Foreign;
    use luagate_core::keys::{self, Keys};
    use std::fmt::{self, Debug};

    pub(crate) struct Span {
        operation: Operation,
        span: tracing::Span,
    }

    impl Operation {
        /// Begins a span.
        pub(crate) fn on<'a>(self, keys: impl IntoIterator<Item = &'a str, IntoIter: Clone>) -> Span {
            Span { operation: self, span: self.span(keys.into_iter()) }
        }
    }

    impl Span {
        /// The operation has ended, for an operation for which nobody waits.
        pub(crate) fn ended(self, foreign: &Foreign, outcome: &'static str) {
            let Span { span, .. } = self;
            foreign.report(move || {
                span.record("outcome", outcome);
            });
        }

        /// Runs `work` in the span and records its outcome.
        pub(crate) async fn run<T, E: Debug>(self, work: impl Future<Output = Result<T, E>>) -> Result<T, E> {
            let success = self.operation.success();
            self.run_as(work, |_| success.to_owned()).await
        }

        /// As `run`, for operations with several kinds of success.
        pub(crate) async fn tell<T: Debug, E: Debug>(
            self,
            work: impl Future<Output = Result<T, E>>,
        ) -> Result<T, E> {
            self.run_as(work, word).await
        }

        async fn run_as<T, E: Debug>(
            self,
            work: impl Future<Output = Result<T, E>>,
            success: impl FnOnce(&T) -> String,
        ) -> Result<T, E> {
            let begun = machine_now();
            let result = tracing::Instrument::instrument(work, self.span.clone()).await;
            if matches!(self.operation, Operation::Acquire | Operation::AcquireSeveral | Operation::Wait) {
                let waited = u64::try_from(since(begun).as_millis());
                self.span.record("waited_ms", waited.unwrap_or(u64::MAX));
            }
            if !self.span.is_disabled() {
                self.span.record("outcome", result.as_ref().map_or_else(word, success));
            }
            result
        }
    }

    /// The name of a variant in the form `timed_out`. The `Debug` form of each outcome begins with it.
    fn word(outcome: &impl Debug) -> String {
        let mut word = String::new();
        for letter in format!("{outcome:?}").chars().take_while(char::is_ascii_alphanumeric) {
            if letter.is_ascii_uppercase() && !word.is_empty() {
                word.push('_');
            }
            word.push(letter.to_ascii_lowercase());
        }
        word
    }

    /// The kind of the keys, or `several` if they differ.
    pub(super) fn kind<'a>(keys: impl Iterator<Item = &'a str>) -> &'a str {
        let mut kinds = keys.map(|key| keys::parts(key).0);
        let first = kinds.next().unwrap_or_default();
        if kinds.all(|kind| kind == first) { first } else { "several" }
    }

    /// The names in these keys, separated by a space, which no name contains.
    pub(super) struct SpanNames<I>(pub(super) I);

    impl<'a, I: Iterator<Item = &'a str> + Clone> fmt::Display for SpanNames<I> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            for (index, key) in self.0.clone().enumerate() {
                let space = if index > 0 { " " } else { "" };
                write!(f, "{space}{}", keys::parts(key).1)?;
            }
            Ok(())
        }
    }

    /// A permit turned out to be lost. The event identifies it by its fence, since an id may contain private
    /// data of the user.
    pub(crate) fn lost(foreign: &Foreign, keys: &Keys, fence: u64) {
        let key = keys.meta.clone();
        foreign.report(move || {
            let (kind, name) = keys::parts(&key);
            tracing::warn!(target: "luagate", kind, name, fence, "permit lost");
        });
    }

    /// The gate renewed a lease in the background.
    pub(crate) fn renewed(foreign: &Foreign, keys: &Keys, fence: u64) {
        let key = keys.meta.clone();
        foreign.report(move || {
            let (kind, name) = keys::parts(&key);
            tracing::debug!(target: "luagate", kind, name, fence, "lease renewed");
        });
    }

    /// The gate could not renew the leases of this many permits in the background, and retries. `keys`: of
    /// one of them.
    pub(crate) fn unrenewed(foreign: &Foreign, keys: &Keys, permits: usize, error: CallError) {
        let key = keys.meta.clone();
        foreign.report(move || {
            let (kind, name) = keys::parts(&key);
            tracing::info!(target: "luagate", kind, name, permits, %error, "leases not renewed; the renewal is retried");
        });
    }

    pub(crate) fn reconnected(foreign: &Foreign, what: &'static str, address: String) {
        foreign.report(move || tracing::info!(target: "luagate", server = address, "{what}"));
    }

    /// Code of the program has panicked in this thread of the gate, which goes on. Called in the thread for
    /// events.
    pub(crate) fn panicked(thread: &'static str) {
        tracing::error!(target: "luagate", thread, "code of the program panicked in a thread of the gate, which goes on");
    }
}
