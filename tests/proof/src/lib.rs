//! Proofs of the scripts: their own text, run in this process.
