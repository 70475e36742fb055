//! The texts of failures, without their remedies.

use luagate_core::failure::{Failure, Reason};

/// What has happened.
pub(crate) fn of(failure: &Failure) -> String {
    match failure.reason() {
        Reason::Refused(refusal) => refusal.to_string(),
        Reason::OtherVersion(refusal) => refusal.detail().to_owned(),
        Reason::Reported { text, .. } => text.clone(),
        Reason::Unexpected(reply) => reply.clone(),
        Reason::MissingReply => "fewer replies than calls".to_owned(),
        Reason::NotSent => "the call was not sent".to_owned(),
        Reason::TooFewReplicas { confirmed, count, timeout } => {
            format!("{confirmed} of {count} confirmed within {timeout:?}")
        }
        Reason::NoNode => "no node is known".to_owned(),
        Reason::NoOwner => "no node of the cluster has the slot of this key".to_owned(),
        Reason::SlotsNotAssigned => "the cluster has not assigned slots to its nodes yet".to_owned(),
        Reason::SlotsUnreadable => "the reply to CLUSTER SLOTS has an unknown form".to_owned(),
        Reason::NoAddress(to) => {
            format!("a node of the cluster redirects to {to:?}, which is not an address")
        }
        Reason::NoSentinel => "no sentinel is known".to_owned(),
        Reason::MasterUnknown(master) => format!("the sentinels do not know the master {master:?}"),
        Reason::NotMaster(master) => {
            format!("the server that the sentinels report for {master:?} is not a master")
        }
        Reason::EndedBeforeGrant => {
            "the permit had ended before its grant arrived. Use a longer lease".to_owned()
        }
        Reason::QueuedOutOfTurn => "`queued` in reply to a call that does not wait".to_owned(),
    }
}
