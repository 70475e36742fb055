//! Errors of a server.

use crate::protocol::exchange::error_in;
use crate::protocol::failure::CallError;
use crate::protocol::kind::FailureKind;
use crate::protocol::reply::{error_of, unexpected};
use crate::wire::server_error;

/// The meaning of errors: for which of them it is known that nothing was executed.
pub(super) fn check() {
    match unexpected(&"é".repeat(300)) {
        CallError::Unknown(failure) => {
            assert_eq!(format!("{:?}", failure.reason()).matches('é').count(), 199)
        }
        other => panic!("{other:?}"),
    }
    use FailureKind::{NotReady, OutOfMemory, WrongVersion};
    for (reply, invalid, failed) in [
        ("LUAGATE id: takes: 1", "id: takes: 1", None),
        ("LUAGATE takes 3 keys", "call: takes 3 keys", None),
        (
            "CROSSSLOT Keys do not",
            "keys: no hash tag, or different ones. Accepted: keys with one hash tag",
            None,
        ),
        ("LUAGATE layout: has 9", "has 9", Some(WrongVersion)),
        ("OOM command not allowed", "OOM", Some(OutOfMemory)),
        ("NOSCRIPT No matching script", "NOSCRIPT", Some(NotReady)),
    ] {
        match (error_of(error_in(server_error(reply)).unwrap_err()), failed) {
            (CallError::Invalid(error), None) => assert_eq!(error.to_string(), invalid),
            (CallError::Failed(failure), Some(kind)) => {
                assert_eq!(failure.kind(), kind);
                assert!(format!("{failure:?}").contains(invalid), "{failure:?}");
            }
            (error, _) => panic!("{reply}: {error:?}"),
        }
    }
}
