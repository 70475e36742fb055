//! The cryptography of rustls. The application chooses it. Without a choice `redis` would panic.

use crate::error::failure::{Failure, FailureKind};
use rustls::crypto::CryptoProvider;
use std::sync::Arc;

/// The provider that the application chose, or the only one that was compiled in.
pub(super) fn chosen() -> Result<Arc<CryptoProvider>, Failure> {
    match CryptoProvider::get_default() {
        Some(chosen) => Ok(chosen.clone()),
        None => only(compiled_in()).map(Arc::new).map_err(|text| Failure::new(FailureKind::Tls, text)),
    }
}

/// The only one, or the instruction for the application.
fn only<T>(compiled_in: [Option<T>; 2]) -> Result<T, &'static str> {
    match compiled_in {
        [Some(only), None] | [None, Some(only)] => Ok(only),
        [None, None] => Err(
            "rustls has no cryptography provider. Add `rustls` to your program with its feature `ring` or `aws-lc-rs`",
        ),
        [Some(_), Some(_)] => Err("rustls has several cryptography providers and none is chosen. Call \
             `rustls::crypto::ring::default_provider().install_default()` or the same of `aws_lc_rs` at the start of your program"),
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
        assert!(chosen().is_ok());
    }

    #[test]
    fn none_or_several_need_a_choice() {
        assert_eq!(only([Some(1), None]), Ok(1));
        assert_eq!(only([None, Some(2)]), Ok(2));
        assert!(only::<()>([None, None]).is_err_and(|text| text.contains("`ring` or `aws-lc-rs`")));
        assert!(only([Some(1), Some(2)]).is_err_and(|text| text.contains("install_default()")));
    }
}
