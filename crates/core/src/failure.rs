//! Why a call has no answer. `luagate` turns this into its errors, with their texts.

use crate::invalid::Invalid;
use crate::kind::FailureKind;
use crate::meaning::Meaning;
use crate::value::Refusal;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

/// Why a call has no answer.
#[derive(Clone, Debug)]
pub enum CallError {
    /// An argument is invalid. Nothing was changed.
    Invalid(Invalid),
    /// The server could not be used. Nothing was changed.
    Failed(Failure),
    /// The server may have run the call.
    Unknown(Failure),
}

/// The server could not be used.
#[derive(Clone, Debug)]
pub struct Failure(Box<Cause>); // boxed, since every result of a call has the size of its error

#[derive(Clone, Debug)]
struct Cause {
    kind: FailureKind,
    reason: Reason,
    /// The server may have run the call that ended so.
    may_have_run: bool,
}

/// What has happened.
#[derive(Clone, Debug)]
pub enum Reason {
    /// The server, or a proxy before it, replied this error.
    Refused(Refusal),
    /// A text of the caller of this crate, and an error that it may have received.
    Reported {
        text: String,
        source: Option<Arc<dyn Error + Send + Sync>>,
    },
    /// The keys have the layout of another version. The text is that of the script.
    OtherVersion(Refusal),
    MissingReply,
    /// The scripts never return this.
    Unexpected(String),
    NotSent,
    TooFewReplicas {
        confirmed: u32,
        count: u32,
        timeout: Duration,
    },
    NoNode,
    /// No node has the slot of the key.
    NoOwner,
    SlotsNotAssigned,
    SlotsUnreadable,
    /// A node redirects to this, which is no address.
    NoAddress(String),
    NoSentinel,
    MasterUnknown(String),
    /// The server that the sentinels report for this name is not a master.
    NotMaster(String),
    EndedBeforeGrant,
    /// The script answered `queued` to a caller that does not wait.
    QueuedOutOfTurn,
}

impl From<Invalid> for CallError {
    fn from(invalid: Invalid) -> CallError {
        CallError::Invalid(invalid)
    }
}

impl CallError {
    /// `None`: an argument was not valid.
    pub fn failure(&self) -> Option<&Failure> {
        match self {
            CallError::Failed(failure) | CallError::Unknown(failure) => Some(failure),
            CallError::Invalid(_) => None,
        }
    }

    /// The error of a command that has no arguments to refuse.
    pub fn into_failure(self) -> Failure {
        match self {
            CallError::Failed(failure) | CallError::Unknown(failure) => failure,
            CallError::Invalid(invalid) => Failure::new(FailureKind::Other, invalid.to_string()),
        }
    }

    /// Whether the call had too little time. This includes the case that no connection could be made in the
    /// time that was left.
    pub fn is_late(&self) -> bool {
        use FailureKind::*;
        self.failure().is_some_and(|failure| matches!(failure.kind(), TimedOut | Unreachable))
    }

    /// Whether no other call may use the connection of this call. If only the time is over, it still works,
    /// and the reply may come.
    pub fn ends_connection(&self) -> bool {
        self.failure().is_some_and(Failure::ends_connection)
    }
}

impl Failure {
    /// What the caller of this crate reports.
    pub fn new(kind: FailureKind, text: impl Into<String>) -> Failure {
        Failure::because(kind, Reason::Reported { text: text.into(), source: None })
    }

    pub(crate) fn because(kind: FailureKind, reason: Reason) -> Failure {
        Failure(Box::new(Cause { kind, reason, may_have_run: false }))
    }

    /// An error that the caller of this crate received instead of a reply.
    pub fn caused_by(meaning: Meaning, text: String, source: impl Error + Send + Sync + 'static) -> Failure {
        let Meaning { kind, may_have_run } = meaning;
        let reason = Reason::Reported { text, source: Some(Arc::new(source)) };
        Failure(Box::new(Cause { kind, reason, may_have_run }))
    }

    /// The server replied this error.
    pub fn refused(refusal: Refusal) -> Failure {
        let Meaning { kind, may_have_run } = Meaning::of(&refusal);
        Failure(Box::new(Cause { kind, reason: Reason::Refused(refusal), may_have_run }))
    }

    /// The script answered `queued` to a caller that does not wait.
    pub fn queued_out_of_turn() -> Failure {
        Failure::because(FailureKind::UnexpectedReply, Reason::QueuedOutOfTurn)
    }

    pub(crate) fn missing_reply() -> Failure {
        let (kind, reason) = (FailureKind::UnexpectedReply, Reason::MissingReply);
        Failure(Box::new(Cause { kind, reason, may_have_run: true }))
    }

    /// The same, of another kind.
    pub fn of_kind(&self, kind: FailureKind) -> Failure {
        Failure(Box::new(Cause { kind, may_have_run: false, ..(*self.0).clone() }))
    }

    pub fn kind(&self) -> FailureKind {
        self.0.kind
    }

    pub fn reason(&self) -> &Reason {
        &self.0.reason
    }

    /// The error that the server replied, if it did.
    pub fn refusal(&self) -> Option<&Refusal> {
        match &self.0.reason {
            Reason::Refused(refusal) => Some(refusal),
            _ => None,
        }
    }

    /// Whether the server may have run the call that ended so.
    pub fn may_have_run(&self) -> bool {
        self.0.may_have_run
    }

    /// Whether no other call may use the connection: it broke, its order of replies is not known any more,
    /// its server no longer is a master, or it is not logged in any more.
    pub fn ends_connection(&self) -> bool {
        use FailureKind::*;
        matches!(
            self.0.kind,
            Disconnected | Unreachable | NotRedis | UnexpectedReply | ReadOnly | Authentication
        )
    }

    /// Whether the server refuses calls only for now: the same call can succeed soon, and nobody has to do
    /// anything.
    pub fn is_refusal_for_now(&self) -> bool {
        use FailureKind::*;
        matches!(self.0.kind, NotReady | ReadOnly)
    }

    /// Whether a retry on a new connection can succeed without any other change.
    pub fn is_passing(&self) -> bool {
        use FailureKind::*;
        self.is_refusal_for_now() || matches!(self.0.kind, Disconnected | Unreachable | TimedOut)
    }

    /// Whether a caller that has a place in line keeps it: also while a password is being changed, and while
    /// the server's memory is full, since a release gives it a permit then, too.
    pub(crate) fn keeps_place(&self) -> bool {
        use FailureKind::*;
        self.is_passing() || matches!(self.0.kind, Authentication | OutOfMemory)
    }

    /// Where a node of a cluster redirects the call. The node has not run the script.
    pub(crate) fn redirect(&self) -> Option<Redirect<'_>> {
        let refusal = self.refusal()?;
        let to = || refusal.detail().split(' ').nth(1);
        match refusal.code() {
            "MOVED" => to().map(Redirect::Moved),
            "ASK" => to().map(Redirect::Ask),
            "TRYAGAIN" => Some(Redirect::TryAgain),
            _ => None,
        }
    }
}

/// Where a node of a cluster redirects a call.
pub(crate) enum Redirect<'a> {
    /// Permanently.
    Moved(&'a str),
    /// For this call only: the slot is being moved there.
    Ask(&'a str),
    /// To no node yet: the slot is being moved, and its keys are on both nodes.
    TryAgain,
}
