//! `luagate-core`, compiled with all its mutants. At most one of them is active: `./dev prove mutants`.
#![allow(warnings, clippy::all, reason = "generated from code that is checked as the library")]

pub mod mutation;

include!(concat!(env!("OUT_DIR"), "/crates/core/src/lib.rs"));
