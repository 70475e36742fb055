//! The calls of the autocomplete scripts. Each takes one key and returns one value.

use super::call::{Argument, Call, Packed, PackedKeys};
use super::reply::Reply;
use super::script::{LazyScript, PREFIX_ADD, PREFIX_MATCH, PREFIX_REMOVE, RECENT_ADD, RECENT_MATCH, RECENT_REMOVE};
use crate::error::CallError;
use redis::Value;

fn pack(script: &'static LazyScript, key: &str, arguments: &[Argument]) -> Packed {
    Packed::new(script, &PackedKeys::new(&[key]), arguments)
}

fn each(members: &[impl AsRef<[u8]>]) -> Vec<Argument<'_>> {
    members.iter().map(|member| member.as_ref().into()).collect()
}

/// A call of [`recent_add`](crate::scripts::autocomplete::recent_add).
#[derive(Clone, Copy, Debug)]
pub struct RecentAdd<'a> {
    /// The key, as [`recent_key`](crate::scripts::autocomplete::recent_key) returns it.
    pub key: &'a str,
    /// The contact, of any bytes.
    pub contact: &'a [u8],
    /// How many contacts are kept: 1 to 1,000.
    pub keep: u32,
}

impl Call for RecentAdd<'_> {
    type Answer = u32;

    fn pack(&self) -> Packed {
        pack(&RECENT_ADD, self.key, &[self.contact.into(), self.keep.into()])
    }

    fn answer(&self, reply: Value) -> Result<u32, CallError> {
        Reply::plain(reply).number()
    }
}

/// A call of [`recent_remove`](crate::scripts::autocomplete::recent_remove).
#[derive(Clone, Copy, Debug)]
pub struct RecentRemove<'a> {
    /// The key, as [`recent_key`](crate::scripts::autocomplete::recent_key) returns it.
    pub key: &'a str,
    /// The contact, of any bytes.
    pub contact: &'a [u8],
}

impl Call for RecentRemove<'_> {
    type Answer = bool;

    fn pack(&self) -> Packed {
        pack(&RECENT_REMOVE, self.key, &[self.contact.into()])
    }

    fn answer(&self, reply: Value) -> Result<bool, CallError> {
        Reply::plain(reply).flag()
    }
}

/// A call of [`recent_match`](crate::scripts::autocomplete::recent_match).
#[derive(Clone, Copy, Debug)]
pub struct RecentMatch<'a> {
    /// The key, as [`recent_key`](crate::scripts::autocomplete::recent_key) returns it.
    pub key: &'a str,
    /// The first bytes of the contacts.
    pub prefix: &'a [u8],
    /// How many contacts to return at most: 1 to 1,000.
    pub count: u32,
}

impl Call for RecentMatch<'_> {
    type Answer = Vec<Vec<u8>>;

    fn pack(&self) -> Packed {
        pack(&RECENT_MATCH, self.key, &[self.prefix.into(), self.count.into()])
    }

    fn answer(&self, reply: Value) -> Result<Vec<Vec<u8>>, CallError> {
        Reply::plain(reply).list()
    }
}

/// A call of [`prefix_add`](crate::scripts::autocomplete::prefix_add).
#[derive(Clone, Copy, Debug)]
pub struct PrefixAdd<'a, M> {
    /// The key, as [`prefix_key`](crate::scripts::autocomplete::prefix_key) returns it.
    pub key: &'a str,
    /// The members, up to 1,000 of any bytes.
    pub members: &'a [M],
}

impl<M: AsRef<[u8]>> Call for PrefixAdd<'_, M> {
    type Answer = u32;

    fn pack(&self) -> Packed {
        pack(&PREFIX_ADD, self.key, &each(self.members))
    }

    fn answer(&self, reply: Value) -> Result<u32, CallError> {
        Reply::plain(reply).number()
    }
}

/// A call of [`prefix_remove`](crate::scripts::autocomplete::prefix_remove).
#[derive(Clone, Copy, Debug)]
pub struct PrefixRemove<'a, M> {
    /// The key, as [`prefix_key`](crate::scripts::autocomplete::prefix_key) returns it.
    pub key: &'a str,
    /// The members, up to 1,000 of any bytes.
    pub members: &'a [M],
}

impl<M: AsRef<[u8]>> Call for PrefixRemove<'_, M> {
    type Answer = u32;

    fn pack(&self) -> Packed {
        pack(&PREFIX_REMOVE, self.key, &each(self.members))
    }

    fn answer(&self, reply: Value) -> Result<u32, CallError> {
        Reply::plain(reply).number()
    }
}

/// A call of [`prefix_match`](crate::scripts::autocomplete::prefix_match).
#[derive(Clone, Copy, Debug)]
pub struct PrefixMatch<'a> {
    /// The key, as [`prefix_key`](crate::scripts::autocomplete::prefix_key) returns it.
    pub key: &'a str,
    /// The first bytes of the members.
    pub prefix: &'a [u8],
    /// How many members to return at most: 1 to 1,000.
    pub count: u32,
}

impl Call for PrefixMatch<'_> {
    type Answer = Vec<Vec<u8>>;

    fn pack(&self) -> Packed {
        pack(&PREFIX_MATCH, self.key, &[self.prefix.into(), self.count.into()])
    }

    fn answer(&self, reply: Value) -> Result<Vec<Vec<u8>>, CallError> {
        Reply::plain(reply).list()
    }
}
