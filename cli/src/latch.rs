//! `luagate latch`: wait until others are done.

use crate::address::ServerArgs;
use crate::args::{LatchAction, LatchArgs};
use crate::ended::Ended;
use crate::output;

pub fn latch(server: &ServerArgs, args: &LatchArgs) -> Result<u8, Ended> {
    let gate = server.open()?;
    let latch = gate.latch(&args.name, args.count).life(args.life);
    match &args.action {
        LatchAction::Down { id } => {
            let left = match id {
                Some(id) => latch.count_down_as(id),
                None => latch.count_down(),
            };
            output::print(left.map_err(Ended::of)?)?;
        }
        LatchAction::Wait { wait } => match wait {
            Some(wait) => latch.wait_timeout(*wait).map_err(Ended::of)?,
            None => latch.wait().map_err(Ended::of)?,
        },
        LatchAction::Show => output::print(latch.left().map_err(Ended::of)?)?,
        LatchAction::Delete => {
            if !latch.delete().map_err(Ended::of)? {
                output::warn(format!("{} was not stored", args.name));
            }
        }
    }
    Ok(0)
}
