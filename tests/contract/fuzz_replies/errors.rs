//! Promise: any error of the server or of the connection ends a call with a typed error.

use super::StandIn;
use super::operations::{OPERATIONS, run};
use crate::fuzz;

use proptest::prelude::*;
use redis::{ErrorKind, RedisError};

proptest! {
    #![proptest_config(fuzz::cases(1_000))]

    #[test]
    fn any_error_has_a_type(error in fuzz::server_error(), several in proptest::collection::vec(fuzz::value(), 0..4)) {
        for (_, operation) in OPERATIONS {
            let mut con = StandIn::answering(&error);
            con.several = Ok(several.clone());
            // A script that is not known is given to the server and asked again: the last of two replies counts.
            match (run(*operation, &mut con), several.last()) {
                (Ok(told), Some(last)) if several.len() == 2 => prop_assert_eq!(&told, last),
                (Ok(told), _) => prop_assert!(false, "{:?} after {:?}", told, error),
                (Err(error), _) => drop(error.to_string()),
            }
        }
    }
}

#[test]
fn an_error_of_the_connection_has_a_type() {
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
            let mut con = StandIn { single: Err(RedisError::from((kind, "broken"))), several: Ok(Vec::new()) };
            assert!(run(*operation, &mut con).is_err());
        }
    }
}
