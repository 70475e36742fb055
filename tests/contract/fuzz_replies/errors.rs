//! Promise: any error of the server or the connection becomes a typed error.

use super::StandIn;
use super::operations::{OPERATIONS, run};
use crate::fuzz;

use proptest::prelude::*;
use redis::{ErrorKind, RedisError};

proptest! {
    #![proptest_config(fuzz::cases(1_000))]

    #[test]
    fn any_server_error_becomes_a_typed_error(error in fuzz::server_error(), several in proptest::collection::vec(fuzz::value(), 0..4)) {
        for (_, operation) in OPERATIONS {
            let mut con = StandIn::answering(&error);
            con.several = Ok(several.clone());
            // If the script is not loaded, the client sends it and calls again: the last of two replies
            // counts.
            match (run(*operation, &mut con), several.last()) {
                (Ok(reported), Some(last)) if several.len() == 2 => prop_assert_eq!(&reported, last),
                (Ok(reported), _) => prop_assert!(false, "{:?} after {:?}", reported, error),
                (Err(error), _) => drop(error.to_string()),
            }
        }
    }
}

#[test]
fn a_connection_error_becomes_a_typed_error() {
    let kinds = [
        ErrorKind::Io,
        ErrorKind::Parse,
        ErrorKind::AuthenticationFailed,
        ErrorKind::UnexpectedReturnType,
        ErrorKind::Client,
        ErrorKind::Extension,
    ];
    for kind in kinds {
        for (_, operation) in OPERATIONS {
            let mut con =
                StandIn { single: Err(RedisError::from((kind, "broken"))), several: Ok(Vec::new()) };
            assert!(run(*operation, &mut con).is_err());
        }
    }
}
