//! Writes a copy of the library in which each small change of `src/protocol` is a branch, selected by a number. So all
//! mutants are compiled at once.

mod operators;
mod tree;

fn main() {
    tree::write();
}
