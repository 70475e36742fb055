//! Proofs of the scripts: their own text, run in this process, against a model that is written for reading.

#[path = "../../../src/error/mod.rs"]
#[allow(dead_code, unused_imports, reason = "the library uses all of it")]
mod error;
#[path = "../../../src/protocol/mod.rs"]
#[allow(dead_code, unused_imports, reason = "the library uses all of it")]
mod protocol;

pub mod action;
pub mod carrier;
pub mod checking;
pub mod client;
pub mod conformance;
pub mod gate;
pub mod keys;
pub mod ledger;
pub mod likeness;
pub mod messages;
pub mod model;
pub mod mutants;
pub mod pattern;
pub mod run;
pub mod scripts;
pub mod several;
pub mod simulation;
pub mod situation;
pub mod world;
