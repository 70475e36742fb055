//! `luagate top`.

use crate::address::ServerArgs;
use crate::args::TopArgs;
use crate::ended::Ended;

pub fn top(_server: &ServerArgs, _args: TopArgs) -> Result<u8, Ended> {
    Ok(0)
}
