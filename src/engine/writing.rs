//! Writing to a connection. The caller that adds the first bytes to an empty buffer writes them, and all that
//! others add meanwhile. A task first lets other tasks add theirs. While too much is unanswered nobody
//! writes, and the reader writes the rest.

use super::ending::broken;
use super::state::{Connection, ConnectionState};
use crate::sync::{MutexGuard, fault, lock};

/// How often a writer continues with packets of others, if a reader will continue after it.
const WRITES: usize = if cfg!(luagate_model) { 1 } else { 4 };

impl Connection {
    /// Writes what is submitted, unless another thread does. After some rounds the reader continues.
    pub(super) fn write<'a>(
        &'a self,
        mut state: MutexGuard<'a, ConnectionState>,
    ) -> MutexGuard<'a, ConnectionState> {
        let mut rounds = WRITES;
        while state.may_write()
            && (rounds > 0 || !(state.packets.will_be_written() || fault!("a writer stops while others add")))
        {
            rounds = rounds.saturating_sub(1);
            let bytes = state.packets.begin_write();
            drop(state);
            if let Err(error) = self.stream.write_all(&bytes) {
                self.end(broken(error));
            }
            state = lock(&self.state);
            state.packets.end_write(bytes);
        }
        state
    }
}
