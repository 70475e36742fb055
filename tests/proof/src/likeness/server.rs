//! The server's data about one client.

use super::view::View;
use crate::model::is_cooling;
use crate::situation::Situation;

impl View<'_> {
    /// The server's data about this client.
    pub(super) fn server(&mut self, situation: &Situation) {
        let kept = &situation.sealed.kept;
        let name = self.party.client.name;
        let is_own = |id: &str| {
            id.strip_prefix('c').and_then(|rest| rest.split('/').next()).and_then(|name| name.parse().ok())
                == Some(name)
        };
        let holders = kept.gate.model.holders.iter();
        let holders: Vec<_> = holders.filter(|(id, _)| is_own(id)).collect();
        let queue = kept.gate.model.queue.iter().zip(kept.times.iter().skip(3));
        let queue: Vec<_> = queue.filter(|(waiter, _)| is_own(&waiter.id)).collect();
        self.add([holders.len() as u64]);
        for (id, holder) in holders {
            self.add_id(id.split(' ').next().unwrap_or_default());
            self.add([u64::from(holder.permits), is_cooling(id).into()]);
            self.add_own(holder.fence);
            self.add_ms(holder.ends.unwrap_or(u64::MAX));
            self.add_ms(holder.least_end);
        }
        for (waiter, ask_at) in queue {
            self.add_id(&waiter.id);
            self.add([u64::from(waiter.permits), waiter.lease_ms, u64::from(!waiter.inbox.is_empty())]);
            self.add_ticket(waiter.ticket);
            self.add([waiter.at_least_ms]);
            self.add_ms(waiter.patience_until);
            self.add_ms(*ask_at);
        }
    }
}
