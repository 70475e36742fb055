//! Calls that servers execute.

use super::{GROUP, World};
use crate::call::{Call, Command, SCRIPTS, Sent, server_error};
use crate::client::flights::Flight;
use crate::ledger::{Check, Violation, broken};
use crate::protocol::call::Call as Script;
use crate::protocol::exchange::RawReply;
use crate::protocol::kind::FailureKind;
use crate::protocol::value::Value;
use crate::run::Run;

impl World {
    /// The server executes the packet of a flight, or of another one that must come first.
    pub(super) fn arrive(&mut self, name: usize, number: u64) -> Check {
        let client = &self.hosts[name].client;
        let Some(flight) = client.first_on_connection(number).cloned() else {
            return Ok(());
        };
        if self.nodes.is_dead(flight.connection.port) {
            return self.refuse(name, flight.number, FailureKind::Unreachable);
        }
        let (mut replies, mut asking) = (Vec::new(), false);
        let mut calls = flight.calls.iter();
        for command in &flight.packet {
            let asked = std::mem::take(&mut asking);
            replies.push(match command {
                Command::Asking => {
                    asking = true;
                    Ok(Value::SimpleString("OK".to_owned()))
                }
                Command::Slots => Ok(self.nodes.report()),
                Command::Call { with_text } => match calls.next() {
                    Some(sent) => self.execute(name, &flight, sent, asked, *with_text)?,
                    None => return broken("simulation", "fewer calls than commands"),
                },
            });
        }
        self.hosts[name].client.carried_out(flight.number, replies);
        Ok(())
    }

    /// A node executes a call, or redirects it, or does not know its script.
    fn execute(
        &mut self,
        name: usize,
        flight: &Flight,
        sent: &Sent,
        asking: bool,
        with_text: bool,
    ) -> Result<RawReply, Violation> {
        let (port, is_awaited) = (flight.connection.port, flight.thread.is_some());
        let nodes = &self.nodes;
        let redirect = self.server.with_store(|store| {
            let exists = |key: &str| store.expires_at(key.as_bytes()).is_some();
            nodes.redirect(port, &sent.keys, asking, exists)
        });
        if let Some((slot, redirect)) = redirect {
            self.tell(|| format!("    node {port}: {redirect:?}: {sent}"));
            self.count.redirects += 1;
            if is_awaited {
                self.check_redirect(name, flight, sent, redirect)?;
            }
            return Ok(redirect.reply(slot));
        }
        if with_text {
            self.nodes.learn(port, &sent.script);
        }
        if !self.nodes.knows(port, &sent.script) {
            return Ok(server_error("NOSCRIPT No matching script"));
        }
        self.count.asked += u64::from(asking);
        self.check_asked(name, sent, is_awaited)?;
        self.note_secret(name, sent);
        self.note_subscription(name, sent, is_awaited);
        let before = self.ticket_of(name, sent, is_awaited);
        let reply = self.run(sent)?;
        self.nodes.executed(port, &sent.keys);
        self.check_place(sent, before, &reply)?;
        let is_open = !self.hosts[name].client.is_closed(flight.connection);
        self.note_call(name, sent, is_awaited, is_open, &reply);
        Ok(reply)
    }

    pub(super) fn come_back(&mut self, name: usize, number: u64) -> Check {
        let now = self.hosts[name].now(self.mono);
        self.hosts[name].client.come_back(number, now);
        self.look_after(name)
    }

    /// The answer to a call that is executed at once. `None` also while its slot moves.
    pub(super) fn call<C: Script>(&mut self, call: &C) -> Result<Option<C::Answer>, Violation> {
        let sent = Sent::new(&call.pack(&SCRIPTS));
        if self.nodes.place(&sent.keys[0]).is_some_and(|place| self.nodes.places[place].moves.is_some()) {
            return Ok(None);
        }
        let reply = self.run(&sent)?;
        match reply {
            Ok(Value::Nil) | Err(_) => Ok(None), // not sent, or refused
            Ok(value) => match call.answer(value) {
                Ok(answer) => Ok(Some(answer)),
                Err(error) => broken("reply", format!("the library cannot read it: {error:?}")),
            },
        }
    }

    /// The server executes a call.
    fn run(&mut self, sent: &Sent) -> Result<RawReply, Violation> {
        let micros = self.micros();
        let hosts = &self.hosts;
        let listens = |inbox: &str| {
            let mut clients = hosts.iter().map(|host| &host.client);
            clients.any(|client| client.listens && client.channel == inbox)
        };
        let run = Run {
            server: &mut self.server,
            loaded: &self.loaded,
            micros,
            listens: &listens,
            full: self.full,
        };
        let mut gates = self.gates.iter();
        let gate = gates.position(|gate| gate.keys.list()[0] == sent.keys[0]);
        let done = match (sent.call(), gate) {
            (Call::TryAll { .. }, _) => run.several(&mut self.gates[GROUP], sent),
            (_, Some(gate)) => run.one(&mut self.gates[gate], sent),
            (_, None) => self.latch.run(run, sent),
        };
        let done =
            done.map_err(|violation| Violation { text: format!("{sent}: {}", violation.text), ..violation });
        if let Err(violation) = &done {
            let text = violation.text.clone();
            self.tell(|| text);
        }
        let done = done?;
        self.excuse_waits();
        if let (Call::Acquire(ask), Some(gate)) = (sent.call(), gate) {
            self.note_overtaken(gate, &ask.id);
        }
        self.tell(|| {
            let reply = match &done.reply {
                Ok(words) => words.join(" "),
                Err(text) => text.clone(),
            };
            format!("    runs {sent}: {reply}")
        });
        self.count.scripts += 1;
        self.count.grants += done.grants;
        // A script takes time, so that no two run at the same µs.
        self.advance(1 + self.server.calls_of_last_script())?;
        for (channel, text) in done.messages {
            self.tell(|| format!("    {channel} < {text}"));
            let mut hosts = self.hosts.iter_mut();
            if let Some(host) = hosts.find(|host| host.client.channel == channel) {
                host.observed.push(text.clone());
                if host.client.hears {
                    host.client.mail.push(text);
                }
            }
        }
        Ok(done.raw)
    }
}
