//! With the feature `mutants`: writes `src/protocol` as one file in which each small change is a branch, selected by a
//! number. So all mutants are compiled at once.

#[cfg(feature = "mutants")]
#[path = "build/operators.rs"]
mod operators;
#[cfg(feature = "mutants")]
#[path = "build/tree.rs"]
mod tree;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=build");
    #[cfg(feature = "mutants")]
    tree::write();
}
