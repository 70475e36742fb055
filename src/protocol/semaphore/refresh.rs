//! Giving a permit a new lease.

use super::Grant;
use crate::error::CallError;
use crate::protocol::call::{Argument, Call, Packed};
use crate::protocol::keys::Keys;
use crate::protocol::lease::ServerTime;
use crate::protocol::reply::{read, unexpected};
use crate::protocol::script::REFRESH;
use redis::Value;

pub(crate) struct Refresh<'a> {
    pub(crate) keys: &'a Keys,
    pub(crate) id: &'a str,
    /// 0: permanent.
    pub(crate) lease_ms: u64,
    /// Only the permit with this fence.
    pub(crate) fence: Option<u64>,
}

impl Call for Refresh<'_> {
    /// `None`: the permit is lost.
    type Answer = Option<Grant>;

    fn pack(&self) -> Packed {
        let mut arguments = vec![self.id.into(), self.lease_ms.into()];
        arguments.extend(self.fence.map(Argument::Number));
        Packed::new(&REFRESH, &self.keys.packed, &arguments)
    }

    fn answer(&self, reply: Value) -> Result<Option<Grant>, CallError> {
        read(reply, |reply| match reply.word()? {
            "refreshed" => Grant::read_of_lease(reply, self.lease_ms).map(Some),
            "lost" => reply.number::<ServerTime>().map(|_| None),
            other => Err(unexpected(&other)),
        })
    }
}
