//! The calls of the autocomplete scripts. Each takes one key and returns one value.

use super::call::{Argument, Call, Packed, PackedKeys};
use super::reply::Reply;
use super::script::{ScriptName, Scripts};
use crate::failure::CallError;
use crate::value::Value;

fn each(members: &[impl AsRef<[u8]>]) -> Vec<Argument<'_>> {
    members.iter().map(|member| member.as_ref().into()).collect()
}

/// A call of `recent_add`.
#[derive(Clone, Copy, Debug)]
pub struct RecentAdd<'a> {
    /// The key, as `recent_key` returns it.
    pub key: &'a str,
    /// The contact, of any bytes.
    pub contact: &'a [u8],
    /// How many contacts are kept: 1 to 1,000.
    pub keep: u32,
}

/// A call of `recent_remove`.
#[derive(Clone, Copy, Debug)]
pub struct RecentRemove<'a> {
    /// The key, as `recent_key` returns it.
    pub key: &'a str,
    /// The contact, of any bytes.
    pub contact: &'a [u8],
}

/// A call of `recent_match`.
#[derive(Clone, Copy, Debug)]
pub struct RecentMatch<'a> {
    /// The key, as `recent_key` returns it.
    pub key: &'a str,
    /// The first bytes of the contacts.
    pub prefix: &'a [u8],
    /// How many contacts to return at most: 1 to 1,000.
    pub count: u32,
}

/// A call of `prefix_add`.
#[derive(Clone, Copy, Debug)]
pub struct PrefixAdd<'a, M> {
    /// The key, as `prefix_key` returns it.
    pub key: &'a str,
    /// The members, up to 1,000 of any bytes.
    pub members: &'a [M],
}

/// A call of `prefix_remove`.
#[derive(Clone, Copy, Debug)]
pub struct PrefixRemove<'a, M> {
    /// The key, as `prefix_key` returns it.
    pub key: &'a str,
    /// The members, up to 1,000 of any bytes.
    pub members: &'a [M],
}

/// A call of `prefix_match`.
#[derive(Clone, Copy, Debug)]
pub struct PrefixMatch<'a> {
    /// The key, as `prefix_key` returns it.
    pub key: &'a str,
    /// The first bytes of the members.
    pub prefix: &'a [u8],
    /// How many members to return at most: 1 to 1,000.
    pub count: u32,
}

/// The form of a call with one key and a plain reply, and how the reply is read.
macro_rules! call {
    ([$($generics:tt)*] $type:ty, $script:ident, $call:ident => $arguments:expr, $answer:ty, $read:ident) => {
        impl<$($generics)*> Call for $type {
            type Answer = $answer;

            fn pack(&self, scripts: &'static Scripts) -> Packed {
                let $call = self;
                Packed::new(&scripts[ScriptName::$script], &PackedKeys::new(&[self.key]), &$arguments)
            }

            fn answer(&self, reply: Value) -> Result<$answer, CallError> {
                Reply::plain(reply).$read()
            }
        }
    };
}

call! { [] RecentAdd<'_>, RecentAdd, call => [call.contact.into(), call.keep.into()], u32, number }
call! { [] RecentRemove<'_>, RecentRemove, call => [call.contact.into()], bool, flag }
call! { [] RecentMatch<'_>, RecentMatch, call => [call.prefix.into(), call.count.into()], Vec<Vec<u8>>, list }
call! { [M: AsRef<[u8]>] PrefixAdd<'_, M>, PrefixAdd, call => each(call.members), u32, number }
call! { [M: AsRef<[u8]>] PrefixRemove<'_, M>, PrefixRemove, call => each(call.members), u32, number }
call! { [] PrefixMatch<'_>, PrefixMatch, call => [call.prefix.into(), call.count.into()], Vec<Vec<u8>>, list }
