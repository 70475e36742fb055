//! The log of all processes: each writes when it acquires and when it releases. The checks of this log.

use super::team::{RUST, TOKIO};
use redis::streams::StreamRangeReply;
use redis::{Commands, Connection};
use std::collections::BTreeMap;

/// The time for which a process held permits: from an instant at which it certainly held them to the last
/// such instant.
#[derive(Debug)]
pub struct Stay {
    pub language: String,
    pub permits: u64,
    pub fence: u64,
    /// 0: the process did not wait.
    pub ticket: u64,
    /// In ms.
    head_start: u64,
    from: Instant,
    to: Instant,
    /// Whether the process was killed, so that it ended with the lease.
    pub is_cut: bool,
}

/// The server's time in ms, and the number of the entry within this millisecond.
type Instant = (u64, u64);

fn instant(id: &str) -> Instant {
    let (ms, place) = id.split_once('-').unwrap();
    (ms.parse().unwrap(), place.parse().unwrap())
}

/// The log so far.
pub fn read(con: &mut Connection, log: &str) -> Vec<Stay> {
    let entries: StreamRangeReply = con.xrange_all(log).unwrap();
    let mut stays = BTreeMap::new();
    for entry in entries.ids {
        let field = |name: &str| entry.get::<String>(name).unwrap_or_default();
        let number = |name: &str| field(name).parse().unwrap();
        let at = instant(&entry.id);
        let id = field("id");
        if field("event") == "leave" {
            let stay: &mut Stay = stays.get_mut(&id).expect("each leave follows an enter");
            stay.to = stay.to.min(at);
            stay.is_cut = false;
            continue;
        }
        stays.entry(id).or_insert_with(|| Stay {
            language: field("language"),
            permits: number("permits"),
            fence: number("fence"),
            ticket: number("ticket"),
            head_start: number("head_start"),
            from: at,
            to: (number("expires_at"), 0),
            is_cut: true,
        });
    }
    stays.into_values().collect()
}

/// The maximum number of permits held at the same time.
pub fn most_held(stays: &[Stay]) -> u64 {
    let mut changes = Vec::new();
    for stay in stays.iter().filter(|stay| stay.from < stay.to) {
        changes.push((stay.from, true, stay.permits));
        changes.push((stay.to, false, stay.permits));
    }
    changes.sort(); // at one instant, releases come first
    let (mut held, mut most) = (0, 0);
    for (_, enters, permits) in changes {
        held = if enters { held + permits } else { held - permits };
        most = most.max(held);
    }
    most
}

/// Permits were granted in the order of the tickets, and each fence was granted once. Nobody overtook a
/// waiter by more than its head start.
#[track_caller]
pub fn assert_in_order(stays: &mut [Stay]) {
    stays.sort_by_key(|stay| stay.fence);
    for pair in stays.windows(2) {
        assert!(pair[0].fence < pair[1].fence, "a fence was granted twice: {pair:?}");
    }
    let mut earlier: Vec<&Stay> = Vec::new();
    for stay in stays.iter().filter(|stay| stay.ticket > 0) {
        // A ticket is the next fence of the time when the waiter joined, lower by the head start.
        let joined = stay.ticket + 1_000 * stay.head_start;
        let overtaker = earlier.iter().find(|one| one.ticket > stay.ticket && one.fence > joined);
        // With its connection for calls, a gate in Rust loses its subscription. Until it has another one, its
        // waiters are skipped. They never overtake.
        let may_be_late = [RUST, TOKIO].contains(&&*stay.language);
        assert!(overtaker.is_none() || may_be_late, "{overtaker:?} was granted before {stay:?}");
        earlier.push(stay);
    }
}
