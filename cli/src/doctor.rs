//! `luagate doctor`.

use crate::address::ServerArgs;
use crate::args::DoctorArgs;
use crate::ended::Ended;

pub fn doctor(_server: &ServerArgs, _args: &DoctorArgs) -> Result<u8, Ended> {
    Ok(0)
}
