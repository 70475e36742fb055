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

/// The beginnings of the texts that no test program with all features can produce, each with the reason.
const NOT_PRODUCED: [(&str, &str); 7] = [
    ("url: luagate was compiled without", "every feature is on"),
    ("url: the path of the socket cannot be used", "no system of these tests refuses such a path"),
    ("cannot make a TLS connection: rustls has no", "a provider is compiled in"),
    ("cannot make a TLS connection: rustls has several", "only one provider is compiled in"),
    ("no address of the host within", "it needs a resolver that does not answer"),
    ("the in-memory server cannot start", "the system has no thread left"),
    ("the permission <permission> is missing", "it needs an ACL"),
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
    for (start, _) in NOT_PRODUCED {
        let row = page.rows().find(|row| row.text.starts_with(start));
        let row = row.unwrap_or_else(|| panic!("no row starts with {start:?}"));
        seen.insert(row.text.clone());
    }
    if all && private {
        let missing = page.rows().filter(|row| !seen.contains(&row.text));
        wrong.extend(missing.map(|row| format!("no error has the text of this row: {}", row.text)));
        wrong.extend(unseen(&printed));
    }
    assert!(wrong.is_empty(), "{}\n{} of {} differ", wrong.join("\n"), wrong.len(), printed.texts.len());
}

/// The variants of the public API that no error had.
fn unseen(printed: &Printed) -> Vec<String> {
    let (errors, kinds) = page::variants(include_str!("../release/public-api.txt"));
    assert!(errors.len() > 40 && kinds.len() > 15, "{errors:?} {kinds:?}");
    let errors = errors.into_iter().filter(|variant| !printed.variants.contains(variant));
    let errors = errors.map(|(name, variant)| format!("no error was {name}::{variant}"));
    let kinds = kinds.into_iter().filter(|kind| !printed.kinds.contains(kind));
    errors.chain(kinds.map(|kind| format!("no failure was of the kind {kind}"))).collect()
}

/// The job of another process: prints why a gate cannot be opened.
pub(crate) fn open(arguments: &[String]) {
    println!("{}", luagate::Gate::open(&arguments[0]).unwrap_err());
}
