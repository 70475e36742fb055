//! Messages of a third party that may publish on the channel of a client.

use super::of;
use crate::action::{Forgery, Lie, Signature};
use crate::client::waits::Caller;
use crate::ledger::Check;
use crate::model::signed;
use crate::world::World;

impl World {
    /// A third party publishes a message on the channel of a client.
    pub(super) fn forge(&mut self, name: usize, caller: usize, forgery: Forgery) -> Check {
        let now = self.now();
        let host = &self.hosts[name];
        let one_of = |list: &Vec<String>, at: usize| list.get(of(at, list.len())).cloned();
        let text = match forgery {
            Forgery::Again(at) => one_of(&host.observed, at),
            Forgery::Changed(at) => one_of(&host.observed, at).map(|text| {
                let mut words: Vec<String> = text.split(' ').map(str::to_owned).collect();
                words[2] = (now * 1_000 + 1_000).to_string();
                words[3] = (now + 3_600_000).to_string();
                words.join(" ")
            }),
            Forgery::New(lie, signature) => {
                let waiting = host.client.callers.values().filter_map(|caller| match caller {
                    Caller::Waits(waiting, want) => Some((&waiting.mailbox, want)),
                    _ => None,
                });
                let waiting: Vec<_> = waiting.collect();
                let secrets = waiting.iter().map(|(mailbox, want)| {
                    let secret = mailbox.secret.clone().unwrap_or_default();
                    (want.id.clone(), secret)
                });
                let valid: Vec<_> = secrets.collect(); // a fixed id may wait for several semaphores
                let waiting = waiting.get(of(caller, waiting.len()));
                waiting.and_then(|(mailbox, want)| {
                    let (id, permits) = (&want.id, want.permits.unwrap_or(1));
                    let (fence, end) = (now * 1_000 + 1_000, now + 3_600_000);
                    let text = match lie {
                        Lie::Granted => format!("{id} {permits} {fence} {end} {now}"),
                        Lie::AskNow => format!("{id} 0 0 0 {now}"),
                        Lie::Revoked => format!("{id} 0 0 -1 {now}"),
                    };
                    let own = mailbox.secret.as_deref().unwrap_or_default();
                    match signature {
                        Signature::None => Some(text),
                        Signature::AllBut(digit) => {
                            let text = signed(&format!("#{own}"), text);
                            let at = text.len() - 40 + digit % 40;
                            let wrong = if &text[at..=at] == "0" { "1" } else { "0" };
                            Some(format!("{}{wrong}{}", &text[..at], &text[at + 1..]))
                        }
                        Signature::OfAnother(at) => {
                            let mut others = host.secrets.clone();
                            others.retain(|secret| !valid.contains(secret));
                            let (_, secret) = others.get(of(at, others.len()))?;
                            Some(signed(&format!("#{secret}"), text))
                        }
                    }
                })
            }
        };
        if let Some(text) = text
            && self.hosts[name].client.hears
        {
            self.tell(|| format!("a third party sends to c{name}: {text}"));
            self.hosts[name].client.mail.push(text);
        }
        Ok(())
    }
}
