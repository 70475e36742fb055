//! In place of the library's `error`: only what the connection reports.

use failure::Failure;

#[derive(Debug)]
pub(crate) enum CallError {
    Failed(Failure),
    Unknown(Failure),
}

pub(crate) mod kind {
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub(crate) enum FailureKind {
        TimedOut,
        Disconnected,
        NotRedis,
        UnexpectedReply,
        Other,
    }
}

pub(crate) mod failure {
    use super::kind::FailureKind;
    use redis::RedisError;

    #[derive(Clone, Debug)]
    pub(crate) struct Failure {
        pub(crate) kind: FailureKind,
        pub(crate) text: String,
    }

    impl Failure {
        pub(crate) fn new(kind: FailureKind, text: impl Into<String>) -> Failure {
            Failure { kind, text: text.into() }
        }

        pub(crate) fn of(error: RedisError) -> Failure {
            let kind = match error.kind() {
                redis::ErrorKind::Io => FailureKind::Disconnected,
                _ => FailureKind::NotRedis,
            };
            Failure::new(kind, error.to_string())
        }
    }
}
