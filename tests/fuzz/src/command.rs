//! The files of the command that read foreign input, and what they use. The command is a program, so no other
//! crate can use them.

#![allow(dead_code, unused_imports, reason = "only the parsers are used here")]

#[path = "../../../cli/src"]
mod files {
    pub mod acquire;
    pub mod address;
    pub mod args;
    pub mod completions;
    pub mod doctor;
    pub mod ended;
    pub mod held;
    pub mod label;
    pub mod output;
    pub mod password_file;
    pub mod run;
    pub mod table;
    pub mod words;
}

pub use files::*;
