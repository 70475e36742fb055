//! When the command must end, because its permit does.

use luagate::Permit;
use std::time::Duration;

/// The times before the end of a permit, by this machine's clock. The server ends it later than that.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    lease: Duration,
    /// The command gets TERM this long before.
    pub grace: Duration,
}

/// The signal that the command needs now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// Nothing, for this long.
    Nothing(Duration),
    /// TERM. The next need comes after this time.
    Term(Duration),
    /// KILL, since another caller may get the permit soon.
    Kill,
}

impl Deadline {
    /// The shortest lease: a machine under load needs the time to end a command.
    pub const SHORTEST_LEASE: Duration = Duration::from_secs(1);

    pub fn new(lease: Duration, grace: Option<Duration>) -> Result<Deadline, String> {
        if lease < Self::SHORTEST_LEASE {
            return Err(format!("--lease: got {lease:?}. Accepted: {:?} or more", Self::SHORTEST_LEASE));
        }
        // A lease is renewed when a third of it is over.
        let longest = lease / 2;
        let grace = grace.unwrap_or((lease / 4).min(Duration::from_secs(10)));
        if grace > longest {
            return Err(format!("--grace: got {grace:?}. Accepted: 0 to {longest:?}, half of the lease"));
        }
        Ok(Deadline { lease, grace })
    }

    /// How long before the end of the permit no process may be left.
    fn margin(self) -> Duration {
        (self.lease / 8).min(Duration::from_secs(2))
    }

    /// The same for the guard, which acts only if this process does not.
    fn guard_margin(self) -> Duration {
        self.margin() / 2
    }

    /// The signal that is needed when a permit ends in `left`.
    pub fn need(self, left: Duration) -> Need {
        let until_kill = left.saturating_sub(self.margin());
        let until_term = until_kill.saturating_sub(self.grace);
        match (until_kill.is_zero(), until_term.is_zero()) {
            (true, _) => Need::Kill,
            (false, true) => Need::Term(until_kill),
            (false, false) => Need::Nothing(until_term),
        }
    }

    /// The time until the guard ends the command.
    pub fn until_guard(self, left: Duration) -> Duration {
        left.saturating_sub(self.guard_margin())
    }
}

/// The time until the first of these permits ends.
pub fn left(permits: &[Permit]) -> Duration {
    permits.iter().filter_map(Permit::remaining).min().unwrap_or(Duration::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn term_comes_before_kill_and_both_before_the_end() {
        let seconds = Duration::from_secs;
        let deadline = Deadline::new(seconds(16), Some(seconds(4))).unwrap();
        assert_eq!(deadline.need(seconds(16)), Need::Nothing(seconds(10)));
        assert_eq!(deadline.need(seconds(6)), Need::Term(seconds(4)));
        assert_eq!(deadline.need(seconds(3)), Need::Term(seconds(1)));
        assert_eq!(deadline.need(seconds(2)), Need::Kill);
        assert_eq!(deadline.need(seconds(0)), Need::Kill, "a lost permit");
        assert_eq!(deadline.until_guard(seconds(2)), seconds(1), "the guard comes after this process");
    }

    #[test]
    fn a_command_has_time_before_its_first_renewal() {
        assert!(Deadline::new(Duration::from_millis(999), None).is_err());
        assert!(Deadline::new(Duration::from_secs(10), Some(Duration::from_millis(5_001))).is_err());
        let Need::Nothing(time) = Deadline::new(Duration::from_secs(10), Some(Duration::from_secs(5)))
            .unwrap()
            .need(Duration::from_secs(10))
        else {
            panic!("ended at once");
        };
        assert!(time > Duration::from_secs(10) / 3, "{time:?}");
    }
}
