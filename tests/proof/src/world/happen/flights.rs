//! Calls and messages on their way.

use crate::action::{Action, Refusal};
use crate::call::Command;
use crate::ledger::Check;
use crate::protocol::kind::FailureKind;
use crate::world::World;

impl World {
    pub(super) fn let_fly(&mut self, flight: usize, action: &Action) -> Check {
        let Some((name, number)) = self.flights().nth(flight) else {
            return Ok(());
        };
        let is_suspended = self.hosts[name].is_suspended;
        let mut flights = self.hosts[name].client.flights.iter();
        let Some(flight) = flights.find(|flight| flight.number == number).cloned() else {
            return Ok(());
        };
        match action {
            Action::Arrive { .. } => return self.arrive(name, number),
            Action::Prompt { .. } => self.arrive(name, number)?,
            Action::Return { .. } => {}
            _ if is_suspended => {}
            Action::Lose { .. } if flight.thread.is_none() => {
                self.tell(|| format!("lost: {flight}"));
                let connection = flight.connection;
                self.with(name, |c, now| c.break_connection(connection, true, now));
            }
            Action::Break { is_lost, .. } => {
                self.tell(|| format!("the connection breaks: {flight}"));
                let (connection, is_lost) = (flight.connection, *is_lost);
                self.with(name, |c, now| c.break_connection(connection, is_lost, now));
            }
            Action::GiveUp { is_kept, .. } if flight.thread.is_some() => {
                self.tell(|| format!("timeout of {flight}"));
                self.with(name, |c, now| c.give_up_call(number, *is_kept, now));
            }
            Action::Refuse { why, .. } => {
                self.tell(|| format!("{why:?}: {flight}"));
                let kind = match why {
                    Refusal::Unreachable => FailureKind::Unreachable,
                    Refusal::NotReady => FailureKind::NotReady,
                    Refusal::Forbidden => FailureKind::Permission,
                };
                self.with(name, |client, now| client.refuse(number, kind, now));
            }
            _ => {}
        }
        if matches!(action, Action::Return { .. } | Action::Prompt { .. })
            && !is_suspended
            && let Some(flight) = self.hosts[name].client.first_answered(number)
        {
            let number = flight.number;
            self.note_ticket(name, number);
            return self.come_back(name, number);
        }
        self.look_after(name)
    }

    /// Notes the place in line, if the delivered reply contains one.
    fn note_ticket(&mut self, name: usize, number: u64) {
        let mut flights = self.hosts[name].client.flights.iter();
        let flight = flights.find(|flight| flight.number == number);
        let reported = flight.and_then(|flight| {
            let call = flight.packet.iter().position(|command| matches!(command, Command::Call { .. }))?;
            let reply = flight.replies.as_ref()?.get(call)?;
            let words = crate::scripts::words_of(reply).ok()?;
            let gate = self.gate_of(flight.calls.first()?)?;
            let id = flight.calls.first()?.arguments.first()?.clone();
            let ticket = words.get(1)?.parse().ok()?;
            (words[0] == "queued" && flight.calls[0].acquires(&id)).then_some(((gate, id), ticket))
        });
        if let Some((key, ticket)) = reported {
            self.hosts[name].ids.entry(key).or_default().ticket = Some(ticket);
        }
    }

    pub(super) fn let_mail(&mut self, mail: usize, action: &Action) -> Check {
        let Some((name, at)) = self.mail(mail) else {
            return Ok(());
        };
        let mail = &mut self.hosts[name].client.mail;
        match action {
            Action::Read { .. } => {
                let text = mail.remove(at);
                if self.hosts[name].is_suspended {
                    self.hosts[name].client.mail.push(text);
                    return Ok(());
                }
                self.tell(|| format!("c{name} reads: {text}"));
                if self.hosts[name].observed.contains(&text) {
                    self.note_message(name, &text);
                }
                self.with(name, |client, now| client.read(&text, now));
                self.look_after(name)?;
                self.check_beliefs()
            }
            Action::LoseMail { .. } => {
                let text = mail.remove(at);
                self.tell(|| format!("lost on its way to c{name}: {text}"));
                Ok(())
            }
            _ => {
                let text = mail[at].clone();
                mail.push(text);
                Ok(())
            }
        }
    }
}
