//! The calls of the autocomplete scripts, and their answers.

use super::call::{Argument, Call, Packed, PackedKeys};
use super::reply::Reply;
use super::script::{LazyScript, PREFIX_ADD, PREFIX_MATCH, PREFIX_REMOVE, RECENT_ADD, RECENT_MATCH, RECENT_REMOVE};
use crate::error::CallError;
use redis::Value;

/// Contacts and members, as a script receives and returns them.
pub type Bytes = Vec<u8>;

/// A call of one of these scripts. Each takes one key and returns one value.
pub struct Autocomplete<'a, T> {
    script: &'static LazyScript,
    key: &'a str,
    arguments: Vec<Argument<'a>>,
    read: fn(&mut Reply) -> Result<T, CallError>,
}

impl<'a, T> Autocomplete<'a, T> {
    fn new(
        script: &'static LazyScript,
        key: &'a str,
        arguments: Vec<Argument<'a>>,
        read: fn(&mut Reply) -> Result<T, CallError>,
    ) -> Autocomplete<'a, T> {
        Autocomplete { script, key, arguments, read }
    }
}

impl<T> Call for Autocomplete<'_, T> {
    type Answer = T;

    fn pack(&self) -> Packed {
        Packed::new(self.script, &PackedKeys::new(&[self.key]), &self.arguments)
    }

    fn answer(&self, reply: Value) -> Result<T, CallError> {
        (self.read)(&mut Reply::plain(reply))
    }
}

/// Returns the number of contacts after the call.
pub fn recent_add<'a>(key: &'a str, contact: &'a [u8], keep: u32) -> Autocomplete<'a, u32> {
    Autocomplete::new(&RECENT_ADD, key, vec![contact.into(), keep.into()], Reply::number)
}

/// Returns whether the contact existed.
pub fn recent_remove<'a>(key: &'a str, contact: &'a [u8]) -> Autocomplete<'a, bool> {
    Autocomplete::new(&RECENT_REMOVE, key, vec![contact.into()], Reply::flag)
}

pub fn recent_match<'a>(key: &'a str, prefix: &'a [u8], count: u32) -> Autocomplete<'a, Vec<Bytes>> {
    Autocomplete::new(&RECENT_MATCH, key, vec![prefix.into(), count.into()], Reply::list)
}

/// Returns the number of new members.
pub fn prefix_add<'a>(key: &'a str, members: &'a [impl AsRef<[u8]>]) -> Autocomplete<'a, u32> {
    Autocomplete::new(&PREFIX_ADD, key, each(members), Reply::number)
}

/// Returns the number of members that existed.
pub fn prefix_remove<'a>(key: &'a str, members: &'a [impl AsRef<[u8]>]) -> Autocomplete<'a, u32> {
    Autocomplete::new(&PREFIX_REMOVE, key, each(members), Reply::number)
}

pub fn prefix_match<'a>(key: &'a str, prefix: &'a [u8], count: u32) -> Autocomplete<'a, Vec<Bytes>> {
    Autocomplete::new(&PREFIX_MATCH, key, vec![prefix.into(), count.into()], Reply::list)
}

fn each(members: &[impl AsRef<[u8]>]) -> Vec<Argument<'_>> {
    let members = members.iter().map(|member| member.as_ref().into());
    members.collect()
}
