//! Promise: `guide::errors` lists every error text that users can see. Each text is produced here, most of
//! them by the call that returns it, and compared with the page. So a changed text, a new variant and a row
//! without an error fail this test.

mod arguments;
mod forged;
mod gates;
mod outcomes;
mod page;
mod replies;
mod servers;
#[cfg(feature = "tls")]
mod tls;

use luagate::Error;
use luagate::errors::{AcquireError, CallError, Failure, PermitError, TryAcquireError, WaitError};
use page::Page;
use std::collections::BTreeSet;
use std::fmt::{Debug, Display};

/// Texts that no test program with all features can produce, each with the source that contains it.
const IN_THE_SOURCE: [(&str, &str); 7] = [
    ("url: luagate was compiled without", include_str!("../../src/engine/address.rs")),
    ("url: the path of the socket cannot be used", include_str!("../../src/engine/address.rs")),
    ("cannot make a TLS connection: rustls has no", include_str!("../../src/engine/tls/config.rs")),
    ("cannot make a TLS connection: rustls has several", include_str!("../../src/engine/tls/config.rs")),
    ("no address of the host within", include_str!("../../src/engine/names.rs")),
    ("the in-memory server cannot start", include_str!("../../src/memory.rs")),
    ("the permission <permission> is missing", include_str!("../../src/wait/mod.rs")), // needs an ACL
];

/// The errors that were produced.
#[derive(Default)]
struct Printed {
    texts: BTreeSet<String>,
    /// The names of the type and of the variant.
    variants: BTreeSet<(String, String)>,
    kinds: BTreeSet<String>,
}

impl Printed {
    fn text(&mut self, text: impl Display) {
        let text = text.to_string();
        if !self.texts.contains(&text) {
            println!("{text}");
            self.texts.insert(text);
        }
    }

    /// An error of one type.
    fn one<E: Display + Debug>(&mut self, error: &E) {
        self.text(error);
        let shown = format!("{error:?}");
        let name = std::any::type_name::<E>().rsplit("::").next().unwrap_or_default();
        let variant = shown.split(": ").next().unwrap_or_default();
        self.variants.insert((name.to_owned(), variant.to_owned()));
    }

    /// An error, and the `Error` that it converts into.
    #[track_caller]
    fn error<T: Debug, E: Display + Debug + Clone + Into<Error>>(&mut self, result: Result<T, E>) {
        let error = result.unwrap_err();
        self.one(&error);
        let error: Error = error.into();
        self.one(&error);
        if let Error::Failed(failure) | Error::Unknown(failure) = &error {
            self.kind(failure);
        }
    }

    fn kind(&mut self, failure: &Failure) {
        self.text(failure);
        self.kinds.insert(format!("{:?}", failure.kind()));
    }

    /// The error of a call in each type that has it.
    #[track_caller]
    fn call<T: Debug>(&mut self, result: Result<T, CallError>) {
        let error = result.unwrap_err();
        self.one(&TryAcquireError::from(error.clone()));
        self.one(&AcquireError::from(error.clone()));
        self.one(&PermitError::from(error.clone()));
        self.one(&WaitError::from(error.clone()));
        self.error::<T, _>(Err(error));
    }
}

#[test]
fn the_guide_lists_every_error_text() {
    let mut printed = Printed::default();
    gates::print(&mut printed);
    arguments::print(&mut printed);
    outcomes::print(&mut printed);
    replies::print(&mut printed);
    servers::print(&mut printed);
    #[cfg(feature = "tls")]
    tls::print(&mut printed);
    let page = Page::read(include_str!("../../src/guide/errors.md"));
    let mut seen = BTreeSet::new();
    let mut wrong = Vec::new();
    for text in &printed.texts {
        assert!(!text.contains("hunter2"), "the password of an address: {text}");
        wrong.extend(page.find(text, &mut seen).err());
    }
    let private = crate::support::binary().is_some();
    let all = cfg!(all(feature = "tls", feature = "memory"));
    for (start, source) in IN_THE_SOURCE {
        let row = page.rows().find(|row| row.text.starts_with(start));
        let row = row.unwrap_or_else(|| panic!("no row starts with {start:?}"));
        if row.is_in(source) {
            seen.insert(row.text.clone());
        } else {
            wrong.push(format!("no longer in the source: {}", row.text))
        }
    }
    if all && private {
        let missing = page.rows().filter(|row| !seen.contains(&row.text));
        wrong.extend(missing.map(|row| format!("no error has the text of this row: {}", row.text)));
        wrong.extend(unseen(&printed));
    }
    assert!(wrong.is_empty(), "{}\n{} of {} differ", wrong.join("\n"), wrong.len(), printed.texts.len());
}

/// The variants in the source that no error had.
fn unseen(printed: &Printed) -> Vec<String> {
    let errors = page::variants(include_str!("../../src/error/mod.rs"));
    assert!(errors.len() > 40, "{errors:?}");
    let kinds = page::names_in(include_str!("../../crates/core/src/kind.rs"), "pub enum FailureKind {");
    assert!(kinds.len() > 15, "{kinds:?}");
    let errors = errors.into_iter().filter(|variant| !printed.variants.contains(variant));
    let errors = errors.map(|(name, variant)| format!("no error was {name}::{variant}"));
    let kinds = kinds.into_iter().filter(|kind| !printed.kinds.contains(kind));
    errors.chain(kinds.map(|kind| format!("no failure was of the kind {kind}"))).collect()
}

/// The job of another process: prints why a gate cannot be opened.
pub(crate) fn open(arguments: &[String]) {
    println!("{}", luagate::Gate::open(&arguments[0]).unwrap_err());
}
