//! The functions that a thread is in when it writes to a socket or reads from one. The page
//! `guide::internals` shows them, and tests compare them.

use std::backtrace::Backtrace;
use std::cell::RefCell;
use std::path::Path;

thread_local! {
    static WALKS: RefCell<Option<Vec<Vec<String>>>> = const { RefCell::new(None) };
}

/// Notes the way to here, if this thread does the work of `of`. It is about to write or to read.
pub(super) fn note() {
    WALKS.with_borrow_mut(|walks| {
        if let Some(walks) = walks {
            walks.push(functions(&Backtrace::force_capture().to_string()));
        }
    });
}

/// The way to each write and read that this work causes in this thread.
pub(crate) fn of(work: impl FnOnce()) -> Vec<Vec<String>> {
    WALKS.set(Some(Vec::new()));
    work();
    WALKS.take().unwrap_or_default()
}

/// The functions of the library, from the outermost one, each with its file. A frame of an async function
/// does not name it, but its line does.
fn functions(stack: &str) -> Vec<String> {
    let places = stack.lines().filter_map(|line| line.trim().strip_prefix("at "));
    let mut names: Vec<String> = places.filter_map(name_of).collect();
    names.reverse();
    names.dedup();
    names
}

/// The function at `./src/<file>:<line>:<column>`.
fn name_of(place: &str) -> Option<String> {
    let path = place.trim_start_matches("./");
    let (path, _) = path.rsplit_once(':')?;
    let (path, line) = path.rsplit_once(':')?;
    let file =
        path.strip_prefix("src/").filter(|file| !file.starts_with("guide/") && !file.ends_with("walk.rs"))?;
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).ok()?;
    let before: Vec<&str> = text.lines().take(line.parse().ok()?).collect();
    let function =
        before.iter().rev().find_map(|line| line.split_once("fn ").filter(|(head, _)| is_head(head)))?;
    let name = function.1.split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
    Some(format!("{file} {name}"))
}

/// Whether these words may precede `fn`.
fn is_head(head: &str) -> bool {
    head.split_whitespace().all(|word| ["pub", "pub(crate)", "pub(super)", "async"].contains(&word))
}
