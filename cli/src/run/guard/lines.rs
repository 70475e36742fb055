//! What `luagate run` sends to its guard: lines of JSON.

use super::super::processes::Processes;
use crate::address::ServerArgs;
use crate::held::Held;
use serde::{Deserialize, Serialize};
use std::io;
use std::time::Duration;

#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub enum Line {
    Server(ServerArgs),
    Held(Vec<Held>),
    Started(Processes),
    /// No process may be left at this time. If `run` dies, they get TERM, and KILL after `grace`.
    Ends {
        at: Duration,
        grace: Duration,
    },
}

impl Line {
    pub fn written(&self) -> io::Result<String> {
        Ok(format!("{}\n", serde_json::to_string(self)?))
    }
}

/// Reads lines from bytes as they arrive.
#[derive(Default)]
pub struct Lines(Vec<u8>);

impl Lines {
    /// These bytes have arrived.
    pub fn push(&mut self, bytes: &[u8]) {
        self.0.extend(bytes);
    }

    /// The next complete line. One that this version does not know is skipped.
    pub fn next(&mut self) -> Option<Line> {
        while let Some(end) = self.0.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.0.drain(..=end).collect();
            if let Ok(line) = serde_json::from_slice(&line) {
                return Some(line);
            }
        }
        None
    }
}
