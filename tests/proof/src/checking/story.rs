//! The events up to a broken promise, as readable text.

use super::{WAITING, World};
use crate::client::flights::Flight;
use crate::situation::{Event, Situation, TICK, Want};

impl World {
    /// The events up to a broken promise, as readable text.
    pub(super) fn story(&self, rule: &str, events: Vec<Event>) -> String {
        let mut lines = Vec::new();
        let mut situation = Situation::first(&self.setting);
        for event in events {
            situation = self.tell(&situation, event, &mut lines);
        }
        if rule == WAITING {
            lines.push("From here on no more faults happen:".to_owned());
            let mut calm = 0;
            while let Some(event) = self.calm(&situation)
                && calm < self.patience()
            {
                calm += u64::from(event == Event::Tick);
                situation = self.tell(&situation, event, &mut lines);
            }
        }
        let violation = situation.violation.as_ref();
        let text = violation.map_or("a waiter is not served", |violation| &violation.text);
        format!("{rule} is broken: {text}\n\n{}\n", lines.join("\n"))
    }

    fn tell(&self, situation: &Situation, event: Event, lines: &mut Vec<String>) -> Situation {
        let tick = situation.mono() / TICK;
        lines.push(format!("{tick:3}  {}", situation.describe(event)));
        let mut add = |line| lines.push(line);
        situation.after(&self.setting, &self.carrier, event, Some(&mut add))
    }
}

impl Situation {
    /// An event as readable text.
    fn describe(&self, event: Event) -> String {
        let flight = |who: usize, number: u64| {
            let mut flights = self.parties[who].client.flights.iter();
            flights.find(|flight| flight.number == number).map_or(String::new(), Flight::to_string)
        };
        match event {
            Event::Want(who, want) => {
                let how = match (want.wait, want.inbox) {
                    (Some(0), _) => "at once".to_owned(),
                    (wait, true) => format!("in line for {wait:?} ticks"),
                    (wait, false) => format!("in line for {wait:?} ticks without an inbox"),
                };
                let Want { permits, lease, at_least, max_waiting, head_start, .. } = want;
                format!(
                    "c{who} asks for {permits} {how}, lease {lease} ticks, minimum hold {at_least}, at most {max_waiting} in line, head start {head_start}"
                )
            }
            Event::Act(who, thread) => format!("c{who} runs its thread {thread:?}"),
            Event::Arrive(who, number) => {
                format!("c{who}: executed: {}", flight(who, number))
            }
            Event::Return(who, number) => format!("c{who}: reply to: {}", flight(who, number)),
            Event::Break(who, number) => {
                format!("c{who}: the connection breaks: {}", flight(who, number))
            }
            Event::GiveUp(who, number, _) => {
                format!("c{who}: timeout of {}", flight(who, number))
            }
            Event::Refuse(who, number) => {
                format!("c{who}: cannot be sent: {}", flight(who, number))
            }
            Event::Read(who) => format!("c{who} reads:"),
            Event::LoseMail(who) => format!("lost on its way to c{who}:"),
            Event::Refresh(who) => format!("c{who} refreshes"),
            Event::Leave(who, 0) => format!("c{who} releases"),
            Event::Leave(who, keep) => format!("c{who} releases all but {keep}"),
            Event::Cancel(who) => format!("the wait of c{who} is cancelled"),
            Event::Die(who) => format!("c{who} dies"),
            Event::Tick => "a tick passes".to_owned(),
            Event::Rest => "no client wants anything for a long time".to_owned(),
        }
    }
}
