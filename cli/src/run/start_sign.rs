//! The sign for which the launch step waits before it executes the command: a byte through a pipe. The pipe
//! ends with `luagate run`.

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::unistd::close;
use std::env;
use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsRawFd;
use std::process::Command;

/// The variable with the number of the file.
pub const START_SIGN: &str = "LUAGATE_START_SIGN";

pub struct StartSign(PipeWriter);

impl StartSign {
    /// Of a launch step that is not started yet. It inherits the reader.
    pub fn of(process: &mut Command) -> io::Result<(StartSign, PipeReader)> {
        let (reader, writer) = io::pipe()?;
        fcntl(&reader, FcntlArg::F_SETFD(FdFlag::empty()))?;
        process.env(START_SIGN, reader.as_raw_fd().to_string());
        Ok((StartSign(writer), reader))
    }

    pub fn give(mut self) {
        let _ = self.0.write_all(b"\n"); // an error: the launch step has ended
    }
}

/// Blocks until the start sign. Returns whether it was given.
pub fn is_given() -> bool {
    let Some(file) = env::var(START_SIGN).ok().and_then(|number| number.parse::<i32>().ok()) else {
        return false;
    };
    let opened = File::open(format!("/dev/fd/{file}"));
    let _ = close(file);
    opened.is_ok_and(|mut opened| opened.read_exact(&mut [0]).is_ok())
}
