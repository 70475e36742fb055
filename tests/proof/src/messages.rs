//! Compares what the scripts publish with the model.

use crate::ledger::{Check, broken};
use crate::model::{End, Model, Reported, Waiter, channel, signed};

/// The grants among messages: id, permits, fence, end.
pub fn grants_in(messages: &[(String, String)]) -> Vec<(String, u32, u64, End)> {
    let grant = |(_, text): &(String, String)| {
        let words: Vec<&str> = text.split(' ').collect();
        let fence = words[2].parse().ok().filter(|fence| *fence > 0)?;
        Some((words[0].to_owned(), words[1].parse().ok()?, fence, words[3].parse().ok()))
    };
    messages.iter().filter_map(grant).collect()
}

/// Grants must match the model, in order. Hints must go to waiters, and to all that asked for more than the
/// limit.
pub fn compare_messages(
    reported: &[Reported],
    messages: &[(String, String)],
    before: &Model,
    now: u64,
) -> Check {
    let mut grants = Vec::new();
    let mut hinted = Vec::new();
    let mut revoked = Vec::new();
    for (to, text) in messages {
        let words: Vec<&str> = text.split(' ').collect();
        let [id, permits, fence, at, ..] = words[..] else {
            return broken("messages", text.clone());
        };
        if fence != "0" {
            grants.push((to.clone(), text.clone()));
            continue;
        }
        let hint = |waiter: &&Waiter| {
            let expected = signed(&waiter.inbox, format!("{id} 0 0 {at} {now}"));
            waiter.id == id && channel(&waiter.inbox) == to && expected == *text
        };
        let is_revoked = at == "-1";
        if !before.queue.iter().any(|waiter| hint(&waiter))
            || at.parse::<u64>().is_err() && !is_revoked
            || permits != "0"
        {
            return broken("messages", format!("a hint to {to}: {text}"));
        }
        if is_revoked {
            revoked.push((id.to_owned(), to.clone()));
        } else {
            hinted.push(id.to_owned());
        }
    }
    let mut expected = Vec::new();
    let mut expected_revoked = Vec::new();
    for message in reported {
        match message {
            Reported::Grant { inbox, text, .. } => expected.push((channel(inbox).to_owned(), text.clone())),
            Reported::Hint { inbox, id } if !inbox.is_empty() && !hinted.contains(id) => {
                return broken("messages", format!("{id} received no hint"));
            }
            Reported::Hint { .. } => {}
            Reported::Revoked { inbox, id } if !inbox.is_empty() => {
                expected_revoked.push((id.clone(), channel(inbox).to_owned()));
            }
            Reported::Revoked { .. } => {}
        }
    }
    if revoked != expected_revoked {
        return broken("messages", format!("expected revoked {expected_revoked:?}, got {revoked:?}"));
    }
    if grants != expected {
        return broken("messages", format!("expected {expected:?}, got {grants:?}"));
    }
    Ok(())
}
