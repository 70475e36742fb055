//! Completions and man pages, made from the arguments.

use crate::args::Args;
use crate::ended::Ended;
use crate::output;
use clap::CommandFactory;
use clap_complete::Shell;
use std::path::Path;

pub fn completions(shell: Shell) -> Result<u8, Ended> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "luagate", &mut script);
    output::exactly(&String::from_utf8_lossy(&script))?;
    Ok(0)
}

/// Writes a page for each command into this folder: `luagate.1`, `luagate-run.1`, ...
pub fn man(folder: &Path) -> Result<u8, Ended> {
    clap_mangen::generate_to(Args::command(), folder)
        .map_err(|error| Ended::usage(format!("cannot write into {}: {error}", folder.display())))?;
    Ok(0)
}
