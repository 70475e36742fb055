//! Fuzz targets: every parser of the library and of the command that reads foreign input, each with its
//! promise.
//!
//! A target gets any bytes. It panics if the promise does not hold: no panic of the parser, a typed error for
//! what it refuses, and what it accepts is the same after it was written and read again.

mod command;
mod seeds;
mod targets;

use command::*; // the files of the command name each other as `crate::address`

/// A parser, and its promise.
pub struct Target {
    pub name: &'static str,
    pub run: fn(&[u8]),
    /// Valid inputs, from which the others are made.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

pub const TARGETS: &[Target] = &[
    Target { name: "resp", run: targets::resp::run, seeds: targets::resp::seeds },
    Target { name: "replies", run: targets::replies::run, seeds: seeds::replies },
    Target { name: "reports", run: targets::reports::run, seeds: targets::reports::seeds },
    Target { name: "messages", run: targets::messages::run, seeds: seeds::messages },
    Target { name: "names", run: targets::names::run, seeds: targets::names::seeds },
    Target { name: "urls", run: targets::urls::run, seeds: targets::urls::seeds },
    Target { name: "labels", run: targets::labels::run, seeds: targets::labels::seeds },
    Target { name: "arguments", run: targets::arguments::run, seeds: targets::arguments::seeds },
    Target { name: "completions", run: targets::completions::run, seeds: targets::completions::seeds },
    Target { name: "lines", run: targets::lines::run, seeds: targets::lines::seeds },
];

/// The target with this name.
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}
