//! Promise: a program without the feature for TLS, or without a cryptography provider for rustls, gets an error that names what is
//! missing, before anything is sent. Without a provider, `redis` alone would panic.
//!
//! `cargo test-bare`, and with TLS `cargo test-proofs`: together with the tests of the library, cargo also turns on their features.

use luagate::Gate;
use luagate::errors::CallError;

#[cfg(not(feature = "tls"))]
#[test]
fn tls_without_its_feature_is_refused_with_the_name_of_the_feature() {
    for url in ["rediss://localhost/", "valkeys://localhost/"] {
        let Err(CallError::Invalid(invalid)) = Gate::open(url) else { panic!() };
        assert_eq!(invalid.what(), "url");
        assert!(invalid.to_string().contains("feature `tls`"), "{invalid}");
    }
}

#[cfg(feature = "tls")]
#[test]
fn a_missing_cryptography_provider_is_an_error_that_names_it() {
    let Err(CallError::Failed(failure)) = Gate::open("rediss://127.0.0.1:1/") else { panic!() };
    assert_eq!(failure.kind(), luagate::errors::FailureKind::Tls);
    let text = failure.to_string();
    assert!(text.contains("Add `rustls` to your program with its feature `ring` or `aws-lc-rs`"), "{text}");
}
