//! `luagate release` and `luagate refresh`: what becomes of a permit of `luagate acquire`.

use crate::address::ServerArgs;
use crate::args::{PrintedArgs, RefreshArgs, ReleaseArgs};
use crate::ended::Ended;
use crate::output::visible;
use luagate::admin::{self, Kind, Name};
use luagate::errors::PermitError;
use luagate::{Gate, Lease, Revoked, Semaphore};

/// The status if the id had nothing.
const NOTHING: u8 = 1;

pub fn release(server: &ServerArgs, args: &ReleaseArgs) -> Result<u8, Ended> {
    let gate = server.open()?;
    for semaphore in semaphores(&gate, &args.printed) {
        if semaphore.revoke(&args.printed.id).map_err(Ended::of)? != Revoked::Nothing {
            return Ok(0);
        }
    }
    Err(nothing(&args.printed))
}

pub fn refresh(server: &ServerArgs, args: &RefreshArgs) -> Result<u8, Ended> {
    let gate = server.open()?;
    for semaphore in semaphores(&gate, &args.printed) {
        match semaphore.lease(Lease::fixed(args.lease)).adopt(&args.printed.id) {
            Ok(permit) => {
                let _ = permit.into_id();
                return Ok(0);
            }
            Err(PermitError::Lost(_)) => {}
            Err(error) => return Err(Ended::of(error)),
        }
    }
    Err(nothing(&args.printed))
}

/// The semaphores that the id may belong to. No two callers have the same id.
fn semaphores(gate: &Gate, args: &PrintedArgs) -> impl Iterator<Item = Semaphore> {
    let kinds =
        Kind::ALL.iter().copied().filter(|found| args.kind.is_none_or(|kind| *found == Kind::from(kind)));
    kinds.map(|kind| admin::semaphore(gate, &Name { name: args.name.clone(), kind }))
}

fn nothing(args: &PrintedArgs) -> Ended {
    Ended::new(NOTHING, format!("{} neither holds nor waits for {}", visible(&args.id), visible(&args.name)))
}
