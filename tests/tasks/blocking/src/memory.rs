//! The server inside the process, with gates of the async API.

use crate::errors::CallError;
use crate::{Gate, GateBuilder, redis};
use luagate::memory;
use std::fmt;
use std::time::{Duration, SystemTime};

pub use luagate::memory::{Server, Store};

impl Gate {
    pub fn in_memory() -> Result<(Gate, Memory), CallError> {
        let memory = Memory::new()?;
        Ok((memory.gate()?, memory))
    }
}

#[derive(Clone)]
pub struct Memory {
    memory: memory::Memory,
}

impl Memory {
    pub fn new() -> Result<Memory, CallError> {
        Ok(Memory { memory: memory::Memory::new()? })
    }

    pub fn gate(&self) -> Result<Gate, CallError> {
        self.builder().open()
    }

    pub fn builder(&self) -> GateBuilder {
        GateBuilder::new(self.memory.aio_builder())
    }

    pub fn url(&self) -> String {
        self.memory.url()
    }

    pub fn connection(&self) -> Result<redis::Connection, CallError> {
        self.memory.connection()
    }

    pub fn now(&self) -> SystemTime {
        self.memory.now()
    }

    pub fn set_server_clock(&self, to: SystemTime) {
        self.memory.set_server_clock(to);
    }

    pub fn advance(&self, by: Duration) {
        self.memory.advance(by);
    }

    pub fn suspend(&self, time: Duration) {
        self.memory.suspend(time);
    }

    pub fn with_server<T>(&self, act: impl FnOnce(&mut Server) -> T) -> T {
        self.memory.with_server(act)
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.memory.fmt(f)
    }
}
