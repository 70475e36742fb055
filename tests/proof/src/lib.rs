//! Proofs of the scripts: their own text, executed in this process and compared with a model that is written to be
//! read.

#[path = "../../../src/error/mod.rs"]
#[allow(dead_code, unused_imports, unused_macros, reason = "the library uses all of it")]
mod error;
#[cfg(not(feature = "mutants"))]
#[path = "../../../src/protocol/mod.rs"]
#[allow(dead_code, unused_imports, reason = "the library uses all of it")]
mod protocol;

#[cfg(feature = "mutants")]
pub mod mutation;
#[cfg(feature = "mutants")]
include!(concat!(env!("OUT_DIR"), "/protocol.rs"));

pub mod action;
pub mod call;
pub mod carrier;
pub mod checking;
mod client;
pub mod conformance;
pub mod gate;
pub mod keys;
pub mod latch;
pub mod ledger;
pub mod likeness;
pub mod machines;
pub mod messages;
pub mod model;
pub mod mutants;
pub mod pattern;
pub mod run;
pub mod scripts;
pub mod several;
pub mod simulation;
pub mod situation;
pub mod wire;
pub mod world;
