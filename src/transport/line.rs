//! A connection, the gate's own or one that the user's pool lent it.

use redis::Connection;
use std::ops::{Deref, DerefMut};

pub(crate) enum Line {
    Own(Box<Connection>),
    #[cfg(feature = "r2d2")]
    Lent(Box<r2d2::PooledConnection<redis::Client>>),
}

impl Line {
    /// Whether somebody waits for it to come back.
    pub(crate) fn is_lent(&self) -> bool {
        match self {
            Line::Own(_) => false,
            #[cfg(feature = "r2d2")]
            Line::Lent(_) => true,
        }
    }
}

/// Nobody else expects the gate's timeouts.
#[cfg(feature = "r2d2")]
impl Drop for Line {
    fn drop(&mut self) {
        if let Line::Lent(con) = self {
            let _ = con.set_read_timeout(None);
            let _ = con.set_write_timeout(None);
        }
    }
}

impl Deref for Line {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        match self {
            Line::Own(con) => con,
            #[cfg(feature = "r2d2")]
            Line::Lent(con) => con,
        }
    }
}

impl DerefMut for Line {
    fn deref_mut(&mut self) -> &mut Connection {
        match self {
            Line::Own(con) => con,
            #[cfg(feature = "r2d2")]
            Line::Lent(con) => con,
        }
    }
}
