//! The effect of each event on a situation.

use super::{Event, Party, REST, Setting, Situation, TICK, Tell, Want};
use crate::call::{Call, Sent};
use crate::carrier::Carrier;
use crate::client::{Outcome, Patience, Want as Wanted};
use crate::ledger::{Check, Violation, broken};
use crate::protocol::exchange::RawReply;
use crate::protocol::lease::{LeaseOptions, Moment};
use crate::scripts::words_of;
use std::sync::Arc;

impl Situation {
    /// An action of a client.
    fn with<T>(&mut self, who: usize, work: impl FnOnce(&mut Party, Moment) -> T) -> T {
        let now = self.moment();
        let party = Arc::make_mut(&mut self.parties[who]);
        party.note_releases_that_end(now);
        let result = work(party, now);
        for outcome in std::mem::take(&mut party.client.outcomes) {
            if let Outcome::Nothing { id, unknown: false, .. } = outcome
                && party.stray.remove(&id)
            {
                party.late.insert(id);
            }
        }
        party.tidy();
        result
    }

    pub(super) fn let_happen(
        &mut self,
        setting: &Setting,
        carrier: &Carrier,
        event: Event,
        tell: Tell,
    ) -> Check {
        match event {
            Event::Want(who, want) => self.want(who, want, setting),
            Event::Act(who, thread) => self.with(who, |party, now| party.client.act(thread, now)),
            Event::Arrive(who, number) => self.arrive(carrier, who, number, tell)?,
            Event::Return(who, number) => {
                self.with(who, |party, now| party.client.come_back(number, now));
            }
            Event::Read(who) => self.with(who, |party, now| {
                let text = party.client.mail.remove(0);
                tell(format!("    {text}"));
                party.client.read(&text, now);
            }),
            Event::Refresh(who) => {
                self.renewals -= 1;
                let lease_ms = setting.longest_lease() * TICK / 1_000;
                self.with(who, |party, now| {
                    if let Some((number, _)) = party.permit() {
                        party.client.refresh(number, Some(lease_ms), now);
                    }
                });
            }
            Event::Leave(who, keep) => self.with(who, |party, now| match party.permit() {
                Some((number, _)) if keep == 0 => party.client.drop_permit(number, now),
                Some((number, _)) => party.client.keep_less(number, keep, now),
                None => {}
            }),
            Event::Break(who, _)
            | Event::GiveUp(who, ..)
            | Event::Refuse(who, _)
            | Event::LoseMail(who)
            | Event::Cancel(who)
            | Event::Die(who) => {
                self.faults -= 1;
                self.with(who, |party, now| party.suffer(event, now, tell));
            }
            Event::Tick => self.sealed = carrier.pass(&self.sealed, TICK)?,
            Event::Rest => self.rest(carrier)?,
        }
        Ok(())
    }

    fn want(&mut self, who: usize, want: Want, setting: &Setting) {
        let keys = self.sealed.kept.gate.keys.clone();
        self.with(who, |party, now| {
            party.asked += 1;
            let wanted = Wanted {
                keys,
                id: format!("c{who}/{}", party.asked),
                permits: Some(want.permits),
                limit: setting.limit,
                strict: false,
                max_waiting: want.max_waiting,
                head_start_ms: want.head_start * TICK / 1_000,
                lease: LeaseOptions {
                    lease_ms: want.lease * TICK / 1_000,
                    renewed: false,
                    own_id: false,
                    at_least_ms: want.at_least * TICK / 1_000,
                },
                patience: match want.wait {
                    None => Patience::Forever,
                    Some(0) => Patience::None,
                    Some(ticks) => Patience::For(ticks * TICK / 1_000),
                },
                on_lost: false,
            };
            party.client.is_up = true;
            party.client.want(wanted, now);
        });
        if !want.inbox {
            self.with(who, |party, _| party.client.is_up = false);
        }
    }

    /// Time passes until the keys expire.
    fn rest(&mut self, carrier: &Carrier) -> Check {
        self.sealed = carrier.pass(&self.sealed, REST * TICK)?;
        if carrier.is_there(&self.sealed) {
            return broken("nothing left behind", "a key outlives all leases");
        }
        for who in 0..self.parties.len() {
            self.with(who, |party, _| {
                party.stray.clear();
                party.late.clear();
            });
        }
        Ok(())
    }

    /// The server executes a call.
    fn arrive(&mut self, carrier: &Carrier, who: usize, number: u64, tell: Tell) -> Check {
        let mut flights = self.parties[who].client.flights.iter();
        let Some(flight) = flights.find(|flight| flight.number == number) else {
            return Ok(());
        };
        let (calls, is_awaited) = (flight.calls.clone(), flight.thread.is_some());
        let mut replies = Vec::new();
        for sent in calls {
            replies.push(self.carry_out(carrier, &sent, tell)?);
            let kept = self.sealed.kept.clone();
            self.with(who, |party, now| {
                if let Call::Acquire(ask) = sent.call()
                    && !is_awaited
                {
                    if !party.releases(&ask.id, number, now) {
                        party.late.insert(ask.id.clone());
                    }
                    party.stray.insert(ask.id);
                }
                let model = &kept.gate.model;
                let is_there =
                    |id: &String| model.holders.contains_key(id) || model.queue.iter().any(|w| w.id == *id);
                party.late.retain(is_there);
                party.stray.retain(is_there);
            });
        }
        self.with(who, |party, _| party.client.carried_out(number, replies));
        Ok(())
    }

    fn carry_out(&mut self, carrier: &Carrier, sent: &Sent, tell: Tell) -> Result<RawReply, Violation> {
        let listening = self.parties.iter().map(|party| &party.client);
        let listening = listening.filter(|client| client.listens);
        let listening: Vec<&str> = listening.map(|client| client.channel.as_str()).collect();
        let carried = carrier.carry_out(&self.sealed, sent, &listening)?;
        let words = words_of(&carried.raw);
        tell(match &words {
            Ok(words) => format!("    {}", words.join(" ")),
            Err(text) => format!("    {text}"),
        });
        for (to, text) in &carried.messages {
            tell(format!("    {to} < {text}"));
            for who in 0..self.parties.len() {
                if self.parties[who].client.channel == *to && self.parties[who].client.hears {
                    self.with(who, |party, _| party.client.mail.push(text.clone()));
                }
            }
        }
        self.sealed = carried.sealed;
        // A refresh takes nothing back; neither does a call that only confirms what its caller holds.
        let looks = ["semaphore/acquire", "semaphore/release"].contains(&sent.script.as_str());
        if looks && words.is_ok_and(|words| words[0] != "held") {
            self.check_wake_up()?;
        }
        Ok(carried.raw)
    }
}
