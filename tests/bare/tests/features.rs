//! Promise: a program without the feature for TLS gets an error that names it, before anything is sent.
//!
//! `cargo test-proofs`: together with the tests of the library, cargo also turns on their features.

use luagate::Gate;
use luagate::errors::CallError;

#[test]
fn tls_without_its_feature_is_refused_with_the_name_of_the_feature() {
    for url in ["rediss://localhost/", "valkeys://localhost/"] {
        let Err(CallError::Invalid(invalid)) = Gate::open(url) else { panic!() };
        assert_eq!(invalid.what(), "url");
        assert!(invalid.to_string().contains("feature `tls`"), "{invalid}");
    }
}
