//! Proofs of the scripts: their own text, executed in this process and compared with a model that is written
//! to be read.

#[cfg(not(feature = "mutants"))]
use luagate_core as protocol;
#[cfg(feature = "mutants")]
use luagate_mutated as protocol; // the same with mutants
#[cfg(feature = "mutants")]
pub use luagate_mutated::mutation;

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

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
