//! Promise: a program that chose no cryptography provider for rustls gets an error; `redis` alone would panic.
//!
//! Run it alone with `cargo test -p luagate-bare`: together with other crates of this workspace, cargo also turns on
//! their features.

use luagate::Gate;
use luagate::errors::{CallError, FailureKind};

#[test]
fn missing_cryptography_is_an_error_before_anything_is_sent() {
    let Err(CallError::Failed(failure)) = Gate::open("rediss://127.0.0.1:1/") else { panic!() };
    assert_eq!(failure.kind(), FailureKind::Tls);
    let text = failure.to_string();
    assert!(text.contains("Add `rustls` to your program with its feature `ring` or `aws-lc-rs`"), "{text}");
}
