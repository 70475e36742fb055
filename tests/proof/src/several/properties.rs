//! Properties that must hold, and situations that must be possible.

use super::{LEASES, Moment, Phase, Sent, Several, TICK};
use stateright::Property;
use std::sync::Arc;

impl Several {
    /// Whether a new client can acquire all semaphores once the leases have ended.
    fn can_be_acquired(&self, moment: &Moment) -> bool {
        let mut later = moment.clone();
        let mut store = (*later.store).clone();
        store.set_micros(later.micros() + LEASES.iter().max().unwrap_or(&0) * TICK);
        later.store = Arc::new(store);
        let reply = later.carry_out(self, Sent::All(1), "new/1");
        reply.is_ok_and(|reported| reported.word == "granted")
    }

    pub(super) fn promises(&self) -> Vec<Property<Several>> {
        fn replied(moment: &Moment, word: &str) -> bool {
            moment
                .callers
                .iter()
                .any(|caller| matches!(&caller.flight, Some((_, _, Some(reported))) if reported.word == word))
        }
        let mut properties = vec![
            Property::always("all or nothing", |_, moment: &Moment| {
                moment.violation.as_ref().is_none_or(|violation| violation.rule != "all or nothing")
            }),
            Property::always("every other promise", |_, moment: &Moment| {
                moment.violation.as_ref().is_none_or(|violation| violation.rule == "all or nothing")
            }),
            Property::always("no deadlock", |world: &Several, moment: &Moment| {
                moment.violation.is_some() || world.can_be_acquired(moment)
            }),
            Property::sometimes("a client is denied", |_, moment: &Moment| replied(moment, "denied")),
            Property::sometimes("two clients hold all", |_, moment: &Moment| {
                let holding =
                    moment.callers.iter().filter(|caller| matches!(caller.phase, Phase::Holding(_)));
                holding.count() > 1
            }),
            Property::sometimes("a lease ends before its release", |_, moment: &Moment| {
                replied(moment, "gone")
            }),
        ];
        if self.faults > 0 {
            properties.push(Property::sometimes(
                "a repeated call only confirms its grant",
                |_, moment: &Moment| replied(moment, "held"),
            ));
            if self.ticks > 0 {
                let name = "a denied call leaves what its first run was granted";
                properties.push(Property::sometimes(name, |_, moment: &Moment| {
                    let mut replies =
                        moment.callers.iter().filter_map(|caller| caller.flight.as_ref()?.2.as_ref());
                    replies.any(|reported| reported.still_held == 1)
                }));
            }
        }
        properties
    }
}
