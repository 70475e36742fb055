//! The library, compiled with all mutants of its protocol. At most one of them is active: `./dev prove mutants`.
#![allow(warnings, clippy::all, reason = "generated from code that is checked as the library")]

pub mod mutation;

include!(concat!(env!("OUT_DIR"), "/src/lib.rs"));
