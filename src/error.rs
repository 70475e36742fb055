//! What can go wrong, told apart by type: one small enum for each kind of operation, all of which turn into [`Error`].

pub(crate) mod failure;
pub(crate) mod permission;

use crate::error::failure::Failure;
use std::fmt;
use std::time::Duration;

/// The highest limit of a semaphore, which is what a writer takes of a reader-writer lock, and the highest count of a latch.
pub(crate) const MOST: u32 = i32::MAX as u32;

/// An argument that cannot be: which one, and what it takes. Nothing was sent, or the script refused it and changed
/// nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid {
    what: String,
    why: String,
}

impl Invalid {
    pub(crate) fn new(what: &str, why: impl Into<String>) -> Invalid {
        Invalid {
            what: what.to_owned(),
            why: why.into(),
        }
    }

    /// The same, with where it was found in front.
    #[cfg(any(feature = "cluster", feature = "sentinel"))]
    pub(crate) fn within(self, place: &str) -> Invalid {
        Invalid {
            why: format!("{place}: {}", self.why),
            ..self
        }
    }

    /// The argument: `name`, `id`, `permits`, `limit`, `lease`, `timeout`, ...
    pub fn what(&self) -> &str {
        &self.what
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.why)
    }
}

impl std::error::Error for Invalid {}

/// Not granted: too many are inside, or others wait in front. Not a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Denied {
    /// How many permits are in use.
    pub in_use: u32,
    /// The limit in force.
    pub limit: u32,
    /// How many callers wait in line.
    pub waiting: u64,
    /// When the next lease expires, unless its holder renews it. `None`: no lease that runs now ever expires.
    ///
    /// This is not when a permit will be free: a holder may release long before, and a lease that is renewed expires only if
    /// its holder crashes. For the `Retry-After` of a web service take [`retry_after`](Denied::retry_after).
    pub next_expiry: Option<Duration>,
}

impl Denied {
    /// An estimate of when a permit will be free for the caller, if each permit is held for `hold`, the typical time of the
    /// work: `hold` × (`waiting` + 1) / `limit`. At least one millisecond. Asks nobody.
    ///
    /// ```
    /// # fn answer(denied: &luagate::errors::Denied) {
    /// let after = denied.retry_after(std::time::Duration::from_millis(500));
    /// println!("Retry-After: {}", after.as_millis().div_ceil(1_000)); // whole seconds
    /// # }
    /// ```
    pub fn retry_after(&self, hold: Duration) -> Duration {
        let callers = self.waiting.saturating_add(1) as f64;
        let estimate = hold.as_secs_f64() * callers / f64::from(self.limit.max(1));
        let estimate = Duration::try_from_secs_f64(estimate).unwrap_or(Duration::MAX);
        estimate.max(Duration::from_millis(1))
    }
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let used = Used(self.in_use, self.limit);
        write!(f, "{used} and {} wait", self.waiting)?;
        match self.next_expiry {
            Some(after) => write!(
                f,
                "; the next lease expires in {after:?} unless it is renewed"
            ),
            None => write!(f, "; no lease expires"),
        }
    }
}

impl std::error::Error for Denied {}

/// How full a semaphore is, in words: of this limit so many are in use. Only a reader-writer lock has the highest limit.
pub(crate) struct Used(pub(crate) u32, pub(crate) u32);

impl fmt::Display for Used {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Used(0, MOST) => f.write_str("neither read nor written"),
            Used(MOST, MOST) => f.write_str("being written"),
            Used(readers, MOST) => write!(f, "being read by {readers}"),
            Used(in_use, limit) => write!(f, "{in_use} of {limit} permits are in use"),
        }
    }
}

/// Of several mutexes, the first that could not be locked. None of them is held.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct InTheWay {
    /// Its name.
    pub name: String,
    /// How it was refused; `None`: the time was over before it was asked for.
    pub denied: Option<Denied>,
}

impl fmt::Display for InTheWay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.denied {
            Some(denied) => write!(f, "{} is in the way: {denied}", self.name),
            None => write!(f, "the time was over before {} was asked for", self.name),
        }
    }
}

impl std::error::Error for InTheWay {}

/// The id that was chosen for this call holds already, and an id holds one permit at most.
///
/// It may be another caller with the same id, or an earlier call of this one whose reply was lost:
/// [`Semaphore::adopt`](crate::Semaphore::adopt) takes the permit over, [`Semaphore::revoke`](crate::Semaphore::revoke)
/// gives it back.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AlreadyHeld {
    /// The id.
    pub id: String,
    /// How many permits it holds.
    pub permits: u32,
    /// The fence of the permit that it holds.
    pub fence: u64,
}

impl fmt::Display for AlreadyHeld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the id {} holds already (fence {}); adopt it, revoke it, or use another id",
            self.id, self.fence
        )
    }
}

impl std::error::Error for AlreadyHeld {}

/// A strict semaphore found another limit in force than the one it declares. Nothing is held.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LimitMismatch {
    /// What this caller declares.
    pub declared: u32,
    /// What is in force.
    pub in_force: u32,
}

impl fmt::Display for LimitMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the limit in force is {}, not {} as declared here; `resize` it, or declare the same everywhere",
            self.in_force, self.declared
        )
    }
}

impl std::error::Error for LimitMismatch {}

/// More permits were asked for than the limit in force allows, so waiting cannot help. Nothing is held.
///
/// The limit may be another one than the caller declares: somebody changed it with
/// [`Semaphore::resize`](crate::Semaphore::resize), or the first grant stored another.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AboveLimit {
    /// How many permits were asked for.
    pub permits: u32,
    /// The limit in force.
    pub limit: u32,
}

impl fmt::Display for AboveLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} permits were asked for, but the limit in force is {}; ask for fewer, or raise the limit with `resize`",
            self.permits, self.limit
        )
    }
}

impl std::error::Error for AboveLimit {}

/// Somebody took the place in line away with [`Semaphore::revoke`](crate::Semaphore::revoke). Nothing is held.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PlaceRevoked {
    /// The id that waited.
    pub id: String,
}

impl fmt::Display for PlaceRevoked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the place in line of {} was revoked", self.id)
    }
}

impl std::error::Error for PlaceRevoked {}

/// The permit is not this holder's any more: its lease ended, it was released or revoked, or the server forgot it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lost {
    /// The id that held it.
    pub id: String,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} no longer holds its permit; stop what it protects, then acquire anew",
            self.id
        )
    }
}

impl std::error::Error for Lost {}

/// The latch is not open: not all have counted down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StillClosed {
    /// How many have still to count down.
    pub left: u32,
    /// How many there are in all.
    pub count: u32,
}

impl fmt::Display for StillClosed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} of {} have still to count down",
            self.left, self.count
        )
    }
}

impl std::error::Error for StillClosed {}

/// Writes an enum whose variants each hold one value that explains itself, after a few words of the variant's own.
macro_rules! one_of {
    ($(#[$docs:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident($inner:ty) $words:literal,)* }) => {
        $(#[$docs])*
        #[derive(Clone)]
        #[non_exhaustive]
        pub enum $name { $($(#[$doc])* $variant($inner),)* }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self { $($name::$variant(inner) => write!(f, "{}{inner}", $words),)* }
            }
        }

        /// As it is displayed: this is what people see of an error that leaves `main`.
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self { $($name::$variant(_) => write!(f, "{}: {self}", stringify!($variant)),)* }
            }
        }

        impl std::error::Error for $name {
            fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
                match self { $($name::$variant(inner) => std::error::Error::source(inner),)* }
            }
        }
    };
}

/// The wait was ended by a [`Cancel`](crate::Cancel): from another thread, or since its time was over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cancelled;

impl fmt::Display for Cancelled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the wait was cancelled")
    }
}

impl std::error::Error for Cancelled {}

one_of! {
    /// Why an operation that nobody waits for and nothing is granted by failed.
    CallError {
        /// An argument cannot be; nothing was changed.
        Invalid(Invalid) "",
        /// The server could not be used; nothing was changed.
        Failed(Failure) "",
        /// The call was sent, also again with the same id, and no reply came: it may have been carried out or not.
        Unknown(Failure) "whether the server ran the call is not known: ",
    }
}

impl CallError {
    /// Time may heal it: worth another try.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            CallError::Failed(failure) | CallError::Unknown(failure) => failure.is_passing(),
            CallError::Invalid(_) => false,
        }
    }
}

one_of! {
    /// Why nothing was granted at once.
    TryAcquireError {
        /// Too many are inside, or others wait in front.
        Denied(Denied) "",
        /// The chosen id holds already.
        AlreadyHeld(AlreadyHeld) "",
        /// The semaphore is strict and another limit is in force.
        LimitMismatch(LimitMismatch) "",
        /// More permits were asked for than the limit in force allows.
        AboveLimit(AboveLimit) "",
        /// An argument cannot be; nothing was changed.
        Invalid(Invalid) "",
        /// The server could not be used; nothing is held.
        Failed(Failure) "",
        /// The call was sent and no reply came. A release for its id follows in the background, so nothing stays held.
        Unknown(Failure) "whether the server ran the call is not known: ",
    }
}

one_of! {
    /// Why waiting in line ended without a permit.
    AcquireError {
        /// The time was over. The place in line is given up.
        TimedOut(Denied) "timed out in line: ",
        /// The handle given with `cancelled_by` ended the wait. The place in line is given up.
        Cancelled(Cancelled) "",
        /// Somebody took the place in line away with `revoke`.
        Revoked(PlaceRevoked) "",
        /// The chosen id holds already.
        AlreadyHeld(AlreadyHeld) "",
        /// The semaphore is strict and another limit is in force.
        LimitMismatch(LimitMismatch) "",
        /// More permits were asked for than the limit in force allows.
        AboveLimit(AboveLimit) "",
        /// An argument cannot be; nothing was changed.
        Invalid(Invalid) "",
        /// The server could not be used; nothing is held.
        Failed(Failure) "",
        /// The call was sent and no reply came. A release for its id follows in the background, so nothing stays held.
        Unknown(Failure) "whether the server ran the call is not known: ",
    }
}

one_of! {
    /// Why several mutexes were not locked at once. None of them is held.
    TryLockAllError {
        /// One of them is held, or somebody waits for it.
        InTheWay(InTheWay) "",
        /// An argument cannot be; nothing was changed.
        Invalid(Invalid) "",
        /// The server could not be used.
        Failed(Failure) "",
        /// The call was sent and no reply came. A release follows in the background, so nothing stays held.
        Unknown(Failure) "whether the server ran the call is not known: ",
    }
}

one_of! {
    /// Why waiting for several mutexes ended without them. None of them is held.
    LockAllError {
        /// The time was over while waiting for this one. The place in line is given up.
        TimedOut(InTheWay) "timed out in line: ",
        /// The handle given with `cancelled_by` ended the wait. The place in line is given up.
        Cancelled(Cancelled) "",
        /// Somebody took the place in line away with `revoke`.
        Revoked(PlaceRevoked) "",
        /// One that was locked already was lost while waiting for another.
        Lost(Lost) "",
        /// An argument cannot be; nothing was changed.
        Invalid(Invalid) "",
        /// The server could not be used.
        Failed(Failure) "",
        /// A call was sent and no reply came. A release follows in the background, so nothing stays held.
        Unknown(Failure) "whether the server ran the call is not known: ",
    }
}

one_of! {
    /// Why a lease was not extended.
    RefreshError {
        /// The permit is not this holder's any more.
        Lost(Lost) "",
        /// An argument cannot be; nothing was changed.
        Invalid(Invalid) "",
        /// The server could not be used. The permit lives on until its lease ends.
        Failed(Failure) "",
        /// The call was sent and no reply came. The permit counts by its old lease or by the new one, whichever ends first.
        Unknown(Failure) "whether the server ran the call is not known: ",
    }
}

one_of! {
    /// Why waiting for a latch ended before it was known to be open.
    WaitError {
        /// The time was over.
        TimedOut(StillClosed) "timed out: ",
        /// The handle given with `cancelled_by` ended the wait.
        Cancelled(Cancelled) "",
        /// An argument cannot be; nothing was changed.
        Invalid(Invalid) "",
        /// The server could not be used.
        Failed(Failure) "",
        /// The call was sent and no reply came. A wait holds nothing, so it may simply be made again.
        Unknown(Failure) "whether the server ran the call is not known: ",
    }
}

/// What was waited for when the time was over, and how it stood then.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TimedOut {
    /// A permit of a semaphore, or a lock.
    Acquire(Denied),
    /// Several mutexes.
    LockAll(InTheWay),
    /// A latch.
    Latch(StillClosed),
}

impl fmt::Display for TimedOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TimedOut::Acquire(denied) => write!(f, "in line: {denied}"),
            TimedOut::LockAll(in_the_way) => write!(f, "in line: {in_the_way}"),
            TimedOut::Latch(closed) => write!(f, "waiting for a latch: {closed}"),
        }
    }
}

impl std::error::Error for TimedOut {}

one_of! {
    /// Anything that can go wrong here. Every other error of this crate turns into it.
    Error {
        /// Too many are inside, or others wait in front.
        Denied(Denied) "",
        /// The time to wait was over: in line, for several mutexes, or for a latch.
        TimedOut(TimedOut) "timed out ",
        /// Of several mutexes, this one could not be locked at once.
        InTheWay(InTheWay) "",
        /// The wait was cancelled.
        Cancelled(Cancelled) "",
        /// The place in line was revoked.
        Revoked(PlaceRevoked) "",
        /// The chosen id holds already.
        AlreadyHeld(AlreadyHeld) "",
        /// Another limit is in force than the one declared.
        LimitMismatch(LimitMismatch) "",
        /// More permits were asked for than the limit in force allows.
        AboveLimit(AboveLimit) "",
        /// The permit is not this holder's any more.
        Lost(Lost) "",
        /// An argument cannot be.
        Invalid(Invalid) "",
        /// The server could not be used.
        Failed(Failure) "",
        /// No reply came: the call may have been carried out or not.
        Unknown(Failure) "whether the server ran the call is not known: ",
    }
}

impl From<WaitError> for Error {
    fn from(error: WaitError) -> Error {
        match error {
            WaitError::TimedOut(inner) => Error::TimedOut(TimedOut::Latch(inner)),
            WaitError::Cancelled(inner) => Error::Cancelled(inner),
            WaitError::Invalid(inner) => Error::Invalid(inner),
            WaitError::Failed(inner) => Error::Failed(inner),
            WaitError::Unknown(inner) => Error::Unknown(inner),
        }
    }
}

/// A smaller set of outcomes turns into a larger one, variant by variant.
macro_rules! widen {
    ($($source:ident => $target:ident { $($variant:ident),* })*) => {
        $(impl From<$source> for $target {
            fn from(error: $source) -> $target {
                match error { $($source::$variant(inner) => $target::$variant(inner),)* }
            }
        })*
    };
}

widen! {
    CallError => TryAcquireError { Invalid, Failed, Unknown }
    CallError => AcquireError { Invalid, Failed, Unknown }
    CallError => RefreshError { Invalid, Failed, Unknown }
    CallError => TryLockAllError { Invalid, Failed, Unknown }
    RefreshError => LockAllError { Lost, Invalid, Failed, Unknown }
    TryLockAllError => Error { InTheWay, Invalid, Failed, Unknown }
    CallError => WaitError { Invalid, Failed, Unknown }
    CallError => Error { Invalid, Failed, Unknown }
    TryAcquireError => Error { Denied, AlreadyHeld, LimitMismatch, AboveLimit, Invalid, Failed, Unknown }
    RefreshError => Error { Lost, Invalid, Failed, Unknown }
}

/// One outcome turns into the sets that have it.
macro_rules! wrap {
    ($($variant:ident => $($target:ident)*,)*) => {
        $($(impl From<$variant> for $target {
            fn from(outcome: $variant) -> $target {
                $target::$variant(outcome)
            }
        })*)*
    };
}

wrap! {
    Invalid => CallError TryAcquireError AcquireError TryLockAllError LockAllError RefreshError WaitError Error,
    LimitMismatch => TryAcquireError AcquireError,
    AboveLimit => TryAcquireError AcquireError,
}

impl From<AcquireError> for Error {
    fn from(error: AcquireError) -> Error {
        match error {
            AcquireError::TimedOut(denied) => Error::TimedOut(TimedOut::Acquire(denied)),
            AcquireError::Cancelled(cancelled) => Error::Cancelled(cancelled),
            AcquireError::Revoked(revoked) => Error::Revoked(revoked),
            AcquireError::AlreadyHeld(held) => Error::AlreadyHeld(held),
            AcquireError::LimitMismatch(mismatch) => Error::LimitMismatch(mismatch),
            AcquireError::AboveLimit(above) => Error::AboveLimit(above),
            AcquireError::Invalid(invalid) => Error::Invalid(invalid),
            AcquireError::Failed(failure) => Error::Failed(failure),
            AcquireError::Unknown(failure) => Error::Unknown(failure),
        }
    }
}

impl TryAcquireError {
    /// What it is for a caller whose time to wait was over before it asked.
    pub(crate) fn too_late(self) -> AcquireError {
        match self {
            TryAcquireError::Denied(denied) => AcquireError::TimedOut(denied),
            TryAcquireError::AlreadyHeld(held) => AcquireError::AlreadyHeld(held),
            TryAcquireError::LimitMismatch(mismatch) => AcquireError::LimitMismatch(mismatch),
            TryAcquireError::AboveLimit(above) => AcquireError::AboveLimit(above),
            TryAcquireError::Invalid(invalid) => AcquireError::Invalid(invalid),
            TryAcquireError::Failed(failure) => AcquireError::Failed(failure),
            TryAcquireError::Unknown(failure) => AcquireError::Unknown(failure),
        }
    }
}

impl From<LockAllError> for Error {
    fn from(error: LockAllError) -> Error {
        match error {
            LockAllError::TimedOut(in_the_way) => Error::TimedOut(TimedOut::LockAll(in_the_way)),
            LockAllError::Cancelled(cancelled) => Error::Cancelled(cancelled),
            LockAllError::Revoked(revoked) => Error::Revoked(revoked),
            LockAllError::Lost(lost) => Error::Lost(lost),
            LockAllError::Invalid(invalid) => Error::Invalid(invalid),
            LockAllError::Failed(failure) => Error::Failed(failure),
            LockAllError::Unknown(failure) => Error::Unknown(failure),
        }
    }
}
