//! Promise: for any reply of the server, a call of the scripts returns a typed error or exactly what the
//! reply says. It never panics, and only an exact grant becomes a permit.

mod answers;
mod errors;
mod operations;
mod replies;
mod stand_in;

pub(crate) use stand_in::StandIn;
use stand_in::{reply, text};
