//! Writes a copy of `luagate-core` in which each small change is a branch, selected by a number. So all
//! mutants are compiled at once.

mod operators;
mod tree;

fn main() {
    println!("cargo::rustc-cfg=luagate_planted"); // the proofs plant faults in the copy
    println!("cargo::rustc-check-cfg=cfg(luagate_planted)");
    tree::write();
}
