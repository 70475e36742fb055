//! Permits of several semaphores at once: what `src/several.rs` does around the call.

use super::flights::{Answered, Unanswered, lost};
use super::waits::Caller;
use super::{Client, Connection, Thread, Want, Why};
use crate::call::SCRIPTS;
use crate::protocol::call::Call;
use crate::protocol::failure::CallError;
use crate::protocol::lease::Moment;
use crate::protocol::release::{LostCalls, PendingRelease};
use crate::protocol::semaphore::{AskOne, TryAcquireSeveral, TryAcquireSeveralAnswer};
use crate::protocol::waiter::Granted;
use std::time::Duration;

fn asked(wants: &[Want]) -> Vec<AskOne<'_>> {
    let asked = wants.iter().map(|want| AskOne {
        keys: &want.keys,
        permits: want.permits.unwrap_or(1),
        limit: want.limit,
        lease_ms: want.lease.first_lease_ms(),
        at_least_ms: want.lease.at_least_ms,
    });
    asked.collect()
}

impl Client {
    /// A caller wants permits of several semaphores, all with one id.
    pub(crate) fn try_all(&mut self, wants: Vec<Want>, now: Moment) {
        let number = self.next_number();
        let asked = asked(&wants);
        let call = TryAcquireSeveral { id: &wants[0].id, asked: &asked }.pack(&SCRIPTS);
        self.send(Thread::Caller(number), &[call], None, now);
        self.callers.insert(number, Caller::TriesAll(wants));
    }

    pub(super) fn tried_all(&mut self, wants: &[Want], answered: Answered, now: Moment) {
        let (sent, id) = (answered.sent, &wants[0].id);
        let asked = asked(wants);
        let why = match answered.read(|reply| TryAcquireSeveral { id, asked: &asked }.answer(reply)) {
            Ok(TryAcquireSeveralAnswer::Granted(grants) | TryAcquireSeveralAnswer::Held(grants)) => {
                let granted = wants.iter().zip(grants).map(|(want, (grant, usage))| {
                    Granted::new(&want.keys, &want.id, want.lease, grant, usage.limit, sent).not_ended(now)
                });
                match granted.collect::<Result<Vec<_>, _>>() {
                    Ok(all) => {
                        for (want, granted) in wants.iter().zip(all) {
                            self.granted(want, granted, false, now);
                        }
                        return;
                    }
                    Err(error) => {
                        self.release_all_later(wants, LostCalls::default(), now);
                        Why::Ended(error.into())
                    }
                }
            }
            Ok(answer) => {
                if let TryAcquireSeveralAnswer::Denied { still_held: 1.., .. }
                | TryAcquireSeveralAnswer::AboveLimit { still_held: 1.., .. } = answer
                {
                    self.release_all_later(wants, LostCalls::default(), now);
                }
                Why::Other(format!("{answer:?}"))
            }
            Err(Unanswered { error, connection }) => {
                let unknown = matches!(error, CallError::Unknown(_));
                if unknown {
                    self.release_all_later(wants, lost(connection), now);
                }
                for want in wants {
                    self.nothing(want, Why::Ended(error.clone().into()), unknown);
                }
                return;
            }
        };
        for want in wants {
            self.nothing(want, why.clone(), false);
        }
    }

    /// The server may have granted some of them.
    fn release_all_later(&mut self, wants: &[Want], lost: LostCalls<Connection>, now: Moment) {
        for want in wants {
            let lease = Duration::from_millis(want.lease.first_lease_ms());
            let pending =
                PendingRelease::of_call(&want.keys, &want.id, false, lost.clone(), lease, now.instant());
            self.release_later(pending, None, now);
        }
    }
}
