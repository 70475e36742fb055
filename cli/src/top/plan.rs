//! Decides on the next work of the reading thread, so that it costs the server little.

use luagate::admin::Name;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// The time between the starts of two calls. A call takes the server 0.08 ms, so this is 3 % of one of its
/// cores.
const PACE: Duration = Duration::from_micros(2_500);
/// Added to it for each holder and waiter in the reply. Each takes the server 0.0035 ms.
const PACE_OF_AN_ENTRY: Duration = Duration::from_micros(120);
/// The time between the starts of two searches, at least.
const SEARCH: Duration = Duration::from_secs(10);
/// A search begins after this many times the time that the last one took.
const SEARCH_SHARE: u32 = 20;
/// The pause between two steps of a search is this many times the time of a step.
const STEP_SHARE: u32 = 40;
/// The longest such pause. A step takes the server less than 1 ms.
const STEP_PAUSE: Duration = Duration::from_millis(40);
/// The most rows on the screen that are read in each interval.
const MOST_VISIBLE: usize = 100;
/// The shortest interval.
const SHORTEST: Duration = Duration::from_millis(100);
/// In one of this number of calls, rows on the screen do not come first.
const OTHERS: u32 = 4;

#[derive(Debug, PartialEq, Eq)]
pub enum Work {
    /// Read the opened name.
    Open(Name),
    /// Read a row.
    Read(Name),
    /// Do one step of a search for names.
    Search,
    /// Nothing is due.
    Nothing,
}

pub struct Plan {
    interval: Duration,
    /// Names on the screen, and when each is due.
    visible: HashMap<Name, Instant>,
    opened: Option<(Name, Instant)>,
    /// All names, or those that the first search has found until now.
    names: Vec<Name>,
    /// Whether a search has ended.
    is_complete: bool,
    /// The index of the next one that is read in turn.
    turn: usize,
    turn_begun: Instant,
    turn_due: Instant,
    search_due: Instant,
    /// No search begins before this time.
    search_earliest: Instant,
    count: u32,
}

impl Plan {
    pub fn new(interval: Duration, now: Instant) -> Plan {
        Plan {
            interval: interval.max(SHORTEST),
            visible: HashMap::new(),
            opened: None,
            names: Vec::new(),
            is_complete: false,
            turn: 0,
            turn_begun: now,
            turn_due: now,
            search_due: now,
            search_earliest: now,
            count: 0,
        }
    }

    /// Sets the names on the screen. A name that is new there is due now.
    pub fn show(&mut self, visible: Vec<Name>, opened: Option<Name>, now: Instant) {
        let mut before = std::mem::take(&mut self.visible);
        let due = |name: Name| (before.remove(&name).unwrap_or(now), name);
        self.visible =
            visible.into_iter().take(MOST_VISIBLE).map(due).map(|(due, name)| (name, due)).collect();
        let before = self.opened.take();
        self.opened = opened.map(|name| match before {
            Some((known, due)) if known == name => (name, due),
            _ => (name, now),
        });
    }

    /// The opened name is due now.
    pub fn open_again(&mut self, now: Instant) {
        if let Some((_, due)) = &mut self.opened {
            *due = now;
        }
    }

    /// A search begins.
    pub fn search_begun(&mut self) {
        if !self.is_complete {
            self.names.clear(); // those of a search that has failed
            self.turn = 0;
        }
    }

    /// Names that were found by a search that goes on.
    pub fn add(&mut self, names: &[Name]) {
        if !self.is_complete {
            self.names.extend_from_slice(names);
        }
    }

    /// A step of a search took this long.
    pub fn step_done(&mut self, took: Duration, now: Instant) {
        self.search_due = now + (took * STEP_SHARE).min(STEP_PAUSE);
    }

    /// A search has found these names. The server worked for `busy` on it.
    pub fn search_done(&mut self, names: Vec<Name>, begun: Instant, busy: Duration, now: Instant) {
        self.names = names;
        self.is_complete = true;
        self.search_earliest = now + busy * SEARCH_SHARE;
        self.search_due = self.search_earliest.max(begun + SEARCH);
    }

    /// The server can be reached again, so other names may be stored.
    pub fn search_soon(&mut self, now: Instant) {
        self.search_due = self.search_earliest.max(now);
    }

    /// The work that is due now.
    pub fn next(&mut self, now: Instant) -> Work {
        self.count = self.count.wrapping_add(1);
        if let Some((name, due)) = &mut self.opened
            && *due <= now
        {
            *due = now + self.interval;
            return Work::Open(name.clone());
        }
        let work = match self.count % OTHERS {
            0 => self.other(now).or_else(|| self.row(now)),
            _ => self.row(now).or_else(|| self.other(now)),
        };
        work.unwrap_or(Work::Nothing)
    }

    /// The row on the screen that is due first.
    fn row(&mut self, now: Instant) -> Option<Work> {
        let (name, due) = self.visible.iter_mut().min_by_key(|(_, due)| **due)?;
        if *due > now {
            return None;
        }
        *due = now + self.interval;
        Some(Work::Read(name.clone()))
    }

    /// A search, or a name that is not on the screen. All of these are read at most once in two intervals.
    fn other(&mut self, now: Instant) -> Option<Work> {
        if self.search_due <= now {
            return Some(Work::Search);
        }
        if self.turn_due > now {
            return None;
        }
        if self.turn == 0 {
            self.turn_begun = now;
        }
        while let Some(name) = self.names.get(self.turn) {
            self.turn += 1;
            if !self.visible.contains_key(name) {
                return Some(Work::Read(name.clone()));
            }
        }
        self.turn = 0;
        self.turn_due = self.turn_begun + self.interval * 2;
        None
    }
}

/// The pause after a call that took this time and listed this number of holders and waiters. A slow server
/// gets fewer calls.
pub fn pause(took: Duration, entries: usize) -> Duration {
    let entries = u32::try_from(entries).unwrap_or(u32::MAX);
    let pace = PACE.saturating_add(PACE_OF_AN_ENTRY.saturating_mul(entries));
    pace.saturating_sub(took).max(took / 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use luagate::admin::Kind;

    const INTERVAL: Duration = Duration::from_secs(1);

    fn names(texts: &[&str]) -> Vec<Name> {
        texts.iter().map(|text| Name { name: (*text).to_owned(), kind: Kind::Mutex }).collect()
    }

    /// The names that are read now, each once.
    fn read_at(plan: &mut Plan, now: Instant) -> Vec<String> {
        let mut read = Vec::new();
        loop {
            match plan.next(now) {
                Work::Read(name) => read.push(name.name),
                Work::Open(name) => read.push(format!("opened {}", name.name)),
                Work::Search => read.push("search".to_owned()),
                Work::Nothing => break,
            }
            assert!(read.len() < 100, "{read:?}");
        }
        read.sort();
        read
    }

    /// After a search that found these names and ended now.
    fn plan(found: &[&str], busy: Duration) -> (Plan, Instant) {
        let now = Instant::now();
        let mut plan = Plan::new(INTERVAL, now);
        assert_eq!(plan.next(now), Work::Search);
        plan.search_done(names(found), now, busy, now);
        (plan, now)
    }

    #[test]
    fn rows_on_the_screen_are_read_in_each_interval_and_the_others_in_turn() {
        let (mut plan, now) = plan(&["a", "b", "c", "d"], Duration::ZERO);
        plan.show(names(&["b", "c"]), None, now);
        assert_eq!(read_at(&mut plan, now), ["a", "b", "c", "d"]);
        assert_eq!(read_at(&mut plan, now + INTERVAL / 2), [""; 0]);
        assert_eq!(read_at(&mut plan, now + INTERVAL), ["b", "c"]);
        assert_eq!(read_at(&mut plan, now + INTERVAL * 2), ["a", "b", "c", "d"]);
        plan.show(names(&["c", "d"]), Some(names(&["d"]).remove(0)), now + INTERVAL * 2);
        assert_eq!(read_at(&mut plan, now + INTERVAL * 2), ["d", "opened d"], "what is new is due");
    }

    #[test]
    fn at_most_a_hundred_rows_are_read_in_each_interval() {
        let many: Vec<String> = (0..300).map(|number| number.to_string()).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let (mut plan, now) = plan(&[], Duration::ZERO);
        plan.show(names(&many), None, now);
        let read = (0..1_000).filter(|_| plan.next(now) != Work::Nothing).count();
        assert_eq!(read, 100);
    }

    #[test]
    fn rows_on_the_screen_do_not_keep_others_from_being_read() {
        let (mut plan, mut now) = plan(&["a", "b", "c", "d"], Duration::ZERO);
        plan.show(names(&["a", "b"]), None, now);
        let mut read = Vec::new();
        for _ in 0..24 {
            now += INTERVAL; // a server that is so slow that all rows are always due
            if let Work::Read(name) = plan.next(now) {
                read.push(name.name);
            }
        }
        for name in ["a", "b", "c", "d"] {
            assert!(read.iter().any(|known| known == name), "{name} was not read: {read:?}");
        }
    }

    #[test]
    fn searches_are_rare() {
        let begins = |plan: &mut Plan, from: Instant| {
            (0..1_000)
                .map(|second| from + Duration::from_secs(second))
                .find(|now| plan.next(*now) == Work::Search)
        };
        let (mut fast, now) = plan(&[], Duration::from_millis(1));
        assert_eq!(begins(&mut fast, now), Some(now + Duration::from_secs(10)));
        let (mut slow, now) = plan(&[], Duration::from_secs(3));
        assert_eq!(begins(&mut slow, now), Some(now + Duration::from_secs(60)));
        slow.search_soon(now);
        assert_eq!(begins(&mut slow, now), Some(now + Duration::from_secs(60)), "also after an outage");
        fast.search_soon(now);
        assert_eq!(begins(&mut fast, now), Some(now + Duration::from_secs(1)));
    }

    #[test]
    fn the_server_is_free_between_two_steps_of_a_search() {
        let now = Instant::now();
        let mut plan = Plan::new(INTERVAL, now);
        let mut pause_after = |us| {
            plan.step_done(Duration::from_micros(us), now);
            let is_due = |ms: &u64| plan.next(now + Duration::from_millis(*ms)) == Work::Search;
            (0..1_000).find(is_due)
        };
        assert_eq!([50, 500, 50_000].map(&mut pause_after), [Some(2), Some(20), Some(40)]);
    }

    #[test]
    fn what_a_search_finds_is_read_once_although_the_search_before_has_failed() {
        let now = Instant::now();
        let mut plan = Plan::new(INTERVAL, now);
        for _ in 0..2 {
            plan.search_begun();
            plan.add(&names(&["a", "b"]));
            plan.step_done(INTERVAL, now);
        }
        assert_eq!(read_at(&mut plan, now), ["a", "b"]);
    }

    #[test]
    fn a_slow_server_gets_fewer_calls_and_one_with_long_lists_too() {
        let pauses = [(0, 0), (500, 0), (10_000, 0), (500, 200)];
        let pauses = pauses.map(|(us, entries)| pause(Duration::from_micros(us), entries).as_micros());
        assert_eq!(pauses, [2_500, 2_000, 5_000, 26_000]);
    }
}
