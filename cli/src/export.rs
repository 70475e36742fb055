//! `luagate export`.

use crate::address::ServerArgs;
use crate::args::ExportArgs;
use crate::ended::Ended;

pub fn export(_server: &ServerArgs, _args: ExportArgs) -> Result<u8, Ended> {
    Ok(0)
}
