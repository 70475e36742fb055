//! The log in which each process writes that it is inside, and what must hold of it.

use redis::streams::StreamRangeReply;
use redis::{Commands, Connection};
use std::collections::BTreeMap;

/// One stay inside, from an instant at which the permit was held for sure to the last such instant.
#[derive(Debug)]
pub struct Stay {
    pub language: String,
    pub permits: u64,
    pub fence: u64,
    /// 0: it did not wait.
    pub ticket: u64,
    from: Instant,
    to: Instant,
    /// Whether it ended with the lease, since its process was killed.
    pub is_cut: bool,
}

/// The server's time in ms, and the place among the entries of that time.
type Instant = (u64, u64);

fn instant(id: &str) -> Instant {
    let (ms, place) = id.split_once('-').unwrap();
    (ms.parse().unwrap(), place.parse().unwrap())
}

/// What was logged so far.
pub fn read(con: &mut Connection, log: &str) -> Vec<Stay> {
    let entries: StreamRangeReply = con.xrange_all(log).unwrap();
    let mut stays = BTreeMap::new();
    for entry in entries.ids {
        let field = |name: &str| entry.get::<String>(name).unwrap_or_default();
        let number = |name: &str| field(name).parse().unwrap();
        let at = instant(&entry.id);
        let id = field("id");
        if field("event") == "leave" {
            let stay: &mut Stay = stays.get_mut(&id).expect("who leaves has entered");
            stay.to = stay.to.min(at);
            stay.is_cut = false;
            continue;
        }
        stays.entry(id).or_insert_with(|| Stay {
            language: field("language"),
            permits: number("permits"),
            fence: number("fence"),
            ticket: number("ticket"),
            from: at,
            to: (number("expires_at"), 0),
            is_cut: true,
        });
    }
    stays.into_values().collect()
}

/// The most permits that were held at once.
pub fn most_inside(stays: &[Stay]) -> u64 {
    let mut changes = Vec::new();
    for stay in stays.iter().filter(|stay| stay.from < stay.to) {
        changes.push((stay.from, true, stay.permits));
        changes.push((stay.to, false, stay.permits));
    }
    changes.sort(); // of one instant, who leaves comes first
    let (mut inside, mut most) = (0, 0);
    for (_, enters, permits) in changes {
        inside = if enters { inside + permits } else { inside - permits };
        most = most.max(inside);
    }
    most
}

/// Nobody was granted before somebody who had waited for longer.
#[track_caller]
pub fn assert_in_order(stays: &mut [Stay]) {
    stays.sort_by_key(|stay| stay.fence);
    for pair in stays.windows(2) {
        assert!(pair[0].fence < pair[1].fence, "a fence given twice: {pair:?}");
    }
    let waited: Vec<&Stay> = stays.iter().filter(|stay| stay.ticket > 0).collect();
    for pair in waited.windows(2) {
        assert!(pair[0].ticket < pair[1].ticket, "overtaken: {pair:?}");
    }
}
