//! The cryptography of rustls. The application chooses it. Without a choice `redis` would panic.

use crate::error::failure::{Failure, FailureKind};
use rustls::crypto::CryptoProvider;

/// Fails unless there is a provider to use.
pub(super) fn check() -> Result<(), Failure> {
    let is_chosen = CryptoProvider::get_default().is_some();
    let compiled = compiled_in().into_iter().flatten().count();
    match missing(is_chosen, compiled) {
        None => Ok(()),
        Some(text) => Err(Failure::new(FailureKind::Tls, text)),
    }
}

/// The instruction for the application, if one is needed. `compiled`: the number of providers that were compiled in.
/// rustls uses a single one without a choice.
fn missing(is_chosen: bool, compiled: usize) -> Option<&'static str> {
    match (is_chosen, compiled) {
        (true, _) | (false, 1) => None,
        (false, 0) => Some(
            "rustls has no cryptography provider. Add `rustls` to your program with its feature `ring` or `aws-lc-rs`",
        ),
        (false, _) => Some(
            "rustls has several cryptography providers and none is chosen. Call \
             `rustls::crypto::ring::default_provider().install_default()` or the same of `aws_lc_rs` at the start of your program",
        ),
    }
}

/// Replaces a provider that rustls was compiled without.
mod ring {
    pub(super) struct Absent;

    pub(super) fn default_provider() -> Absent {
        Absent
    }

    impl From<Absent> for Option<rustls::crypto::CryptoProvider> {
        fn from(_: Absent) -> Self {
            None
        }
    }
}
use ring as aws_lc_rs;

/// The providers that rustls was compiled with, for all crates of the program. No `cfg` of this crate shows that. But a
/// module that exists in rustls hides the one with the same name above.
fn compiled_in() -> [Option<CryptoProvider>; 2] {
    #[allow(unused_imports, reason = "neither may be there")]
    use rustls::crypto::*;
    [ring::default_provider().into(), aws_lc_rs::default_provider().into()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_compiled_in_is_seen() {
        // The tests use rustls with `ring`.
        assert_eq!(compiled_in().map(|p| p.is_some()), [true, false]);
        assert!(check().is_ok());
    }

    #[test]
    fn none_or_several_need_a_choice() {
        assert_eq!(missing(true, 0), None);
        assert_eq!(missing(true, 2), None);
        assert_eq!(missing(false, 1), None);
        assert!(missing(false, 0).is_some_and(|text| text.contains("`ring` or `aws-lc-rs`")));
        assert!(missing(false, 2).is_some_and(|text| text.contains("install_default()")));
    }
}
