//! Writes a copy of `luagate-core` in which each small change is a branch, selected by a number. So all
//! mutants are compiled at once.

mod operators;
mod tree;

fn main() {
    tree::write();
}
