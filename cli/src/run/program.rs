//! This program, which is started again: as the guard, as the keeper, and as the step before the command.

use nix::sys::signal::{SigSet, SigmaskHow};
use std::env;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command};

/// This program, also if its file was replaced since it was started.
pub fn own_program() -> io::Result<Command> {
    let program =
        if cfg!(target_os = "linux") { PathBuf::from("/proc/self/exe") } else { env::current_exe()? };
    let mut command = Command::new(program);
    command.arg0("luagate");
    Ok(command)
}

/// Starts it with these signals blocked, besides those that are blocked here. This process waits until the
/// new one executes its program: if Ctrl-Z stopped the new one before that, this process could neither stop
/// nor go on.
pub fn spawn(command: &mut Command, blocked: SigSet) -> io::Result<Child> {
    let own = blocked.thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
    let child = command.spawn();
    own.thread_set_mask()?;
    child
}
