//! What the engine needs of a connection: bytes in both directions at once, with time limits.

#[cfg(all(test, not(luagate_model)))]
mod tests;

use std::io;
use std::time::Duration;

/// The two directions of a connection to a server. One thread may write while another one reads.
pub(crate) trait Stream: Send + Sync {
    /// Writes all bytes. Only one thread writes at a time. Fails if the peer accepts nothing for the write
    /// timeout. A failure ends the connection, since a part of the bytes may have been sent.
    fn write_all(&self, bytes: &[u8]) -> io::Result<()>;

    /// Reads what has arrived into a buffer that is not empty. Blocks for `within` at most, and up to 2 ms
    /// longer; the system may add up to 8 ms. Only one thread reads at a time. `Ok(0)`: the peer has closed
    /// the connection.
    ///
    /// Errors of the kinds `WouldBlock` and `TimedOut`: nothing has arrived. `Interrupted`: this process was
    /// stopped and continued, or a signal handler ran. After these, the connection still works.
    fn read(&self, buffer: &mut [u8], within: Duration) -> io::Result<usize>;

    /// Reads what has arrived without blocking; otherwise as [`read`](Stream::read). Nobody else reads or
    /// writes meanwhile.
    fn read_at_once(&self, buffer: &mut [u8]) -> io::Result<usize>;

    /// Ends both directions. A thread that is blocked in `read` or `write_all` returns soon.
    fn shut_down(&self);
}
