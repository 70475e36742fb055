//! Promise: a program that chose no cryptography for rustls is told so, where `redis` alone would panic.
//!
//! To be run by itself, `cargo test -p luagate-bare`: with other crates of this workspace cargo turns their features on, too.

use luagate::Gate;
use luagate::errors::{CallError, FailureKind};

#[test]
fn it_is_told_before_anything_is_sent() {
    let Err(CallError::Failed(failure)) = Gate::open("rediss://127.0.0.1:1/") else { panic!() };
    assert_eq!(failure.kind(), FailureKind::Tls);
    let text = failure.to_string();
    assert!(text.contains("Add `rustls` to your program with its feature `ring` or `aws-lc-rs`"), "{text}");
}
