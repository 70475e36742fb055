//! The text form of calls, for files and reports: `acquire 1 500 waits`, `granted id 1 fence ticket end`.

use super::{Call, Forgotten, Full, Granted, History, Lease, Op, Outcome};
use std::fmt;

impl fmt::Display for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Lease::Ms(ms) => write!(f, "{ms}"),
            Lease::Renewed(ms) => write!(f, "{ms}+"),
            Lease::Permanent => f.write_str("permanent"),
        }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Op::Acquire { permits, lease, waits, head_start_ms } => {
                let permits = permits.map_or("all".to_owned(), |permits| permits.to_string());
                let waits = if *waits { "waits" } else { "tries" };
                write!(f, "acquire {permits} {lease} {waits}")?;
                if *head_start_ms > 0 { write!(f, " head-start {head_start_ms}") } else { Ok(()) }
            }
            Op::Release { id, keep } => write!(f, "release {id} {keep}"),
            Op::Refresh { id, lease } => write!(f, "refresh {id} {lease}"),
            Op::Look { id } => write!(f, "look {id}"),
            Op::Forget(Forgotten::OneKey) => f.write_str("forget one-key"),
            Op::Forget(Forgotten::TheLast) => f.write_str("forget the-last"),
            Op::Forget(Forgotten::Everything) => f.write_str("forget everything"),
            Op::TwoMasters => f.write_str("two-masters"),
        }
    }
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let answered = if self.answered { "answered" } else { "unanswered" };
        write!(f, "{} {} {} {answered}", self.in_use, self.limit, self.waiting)
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self {
            Outcome::Granted(granted) => {
                return write!(
                    f,
                    "granted {} {} {} {} {}",
                    granted.id,
                    granted.permits,
                    granted.fence,
                    granted.ticket.unwrap_or(0),
                    granted.expires_at.unwrap_or(0)
                );
            }
            Outcome::Denied(full) => return write!(f, "denied {full}"),
            Outcome::TimedOut(full) => return write!(f, "timed-out {full}"),
            Outcome::Refreshed(until) => return write!(f, "refreshed {}", until.unwrap_or(0)),
            Outcome::Cancelled => "cancelled",
            Outcome::Released => "released",
            Outcome::Gone => "gone",
            Outcome::Lost => "lost",
            Outcome::Held => "held",
            Outcome::Done => "done",
            Outcome::Unknown => "unknown",
            Outcome::Failed => "failed",
            Outcome::NeverReturned => "never-returned",
        };
        f.write_str(word)
    }
}

impl Lease {
    fn read(text: &str) -> Option<Lease> {
        Some(match text.strip_suffix('+') {
            Some(ms) => Lease::Renewed(ms.parse().ok()?),
            None if text == "permanent" => Lease::Permanent,
            None => Lease::Ms(text.parse().ok()?),
        })
    }
}

impl Op {
    /// Parses the words of its text form.
    pub fn read(words: &[&str]) -> Option<Op> {
        Some(match *words {
            ["acquire", permits, lease, waits, ref more @ ..] => Op::Acquire {
                permits: match permits {
                    "all" => None,
                    permits => Some(permits.parse().ok()?),
                },
                lease: Lease::read(lease)?,
                waits: waits == "waits",
                head_start_ms: match more {
                    [] => 0,
                    ["head-start", ms] => ms.parse().ok()?,
                    _ => return None,
                },
            },
            ["release", id, keep] => Op::Release { id: id.to_owned(), keep: keep.parse().ok()? },
            ["refresh", id, lease] => Op::Refresh { id: id.to_owned(), lease: Lease::read(lease)? },
            ["look", id] => Op::Look { id: id.to_owned() },
            ["forget", "one-key"] => Op::Forget(Forgotten::OneKey),
            ["forget", "the-last"] => Op::Forget(Forgotten::TheLast),
            ["forget", "everything"] => Op::Forget(Forgotten::Everything),
            ["two-masters"] => Op::TwoMasters,
            _ => return None,
        })
    }
}

impl Full {
    fn read(words: [&str; 4]) -> Option<Full> {
        let [in_use, limit, waiting, reported] = words;
        Some(Full {
            in_use: in_use.parse().ok()?,
            limit: limit.parse().ok()?,
            waiting: waiting.parse().ok()?,
            answered: reported == "answered",
        })
    }
}

/// 0 means `None`.
fn some(text: &str) -> Option<Option<u64>> {
    Some(Some(text.parse().ok()?).filter(|number| *number > 0))
}

impl Outcome {
    /// Parses the words of its text form.
    pub fn read(words: &[&str]) -> Option<Outcome> {
        Some(match *words {
            ["granted", id, permits, fence, ticket, expires_at] => Outcome::Granted(Granted {
                id: id.to_owned(),
                permits: permits.parse().ok()?,
                fence: fence.parse().ok()?,
                ticket: some(ticket)?,
                expires_at: some(expires_at)?,
            }),
            ["denied", a, b, c, d] => Outcome::Denied(Full::read([a, b, c, d])?),
            ["timed-out", a, b, c, d] => Outcome::TimedOut(Full::read([a, b, c, d])?),
            ["refreshed", until] => Outcome::Refreshed(some(until)?),
            ["cancelled"] => Outcome::Cancelled,
            ["released"] => Outcome::Released,
            ["gone"] => Outcome::Gone,
            ["lost"] => Outcome::Lost,
            ["held"] => Outcome::Held,
            ["done"] => Outcome::Done,
            ["unknown"] => Outcome::Unknown,
            ["failed"] => Outcome::Failed,
            ["never-returned"] => Outcome::NeverReturned,
            _ => return None,
        })
    }
}

impl History {
    /// Parses lines such as `a 0 2 acquire 1 1000 tries -> granted a 1 1000 0 0`: caller, start and end in
    /// ms, operation and outcome.
    pub fn of(lines: &[&str]) -> History {
        let ms = |word: &str| (word.parse::<f64>().unwrap() * 1_000.0) as u64;
        let call = |line: &&str| {
            let (asked, reported) = line.split_once(" -> ").unwrap();
            let asked: Vec<&str> = asked.split_whitespace().collect();
            let reported: Vec<&str> = reported.split_whitespace().collect();
            let [who, start, end, op @ ..] = asked.as_slice() else { panic!("{line}") };
            Call {
                who: (*who).to_owned(),
                semaphore: "s".to_owned(),
                op: Op::read(op).unwrap_or_else(|| panic!("{line}")),
                start: ms(start),
                end: (*end != "-").then(|| ms(end)),
                outcome: Outcome::read(&reported).unwrap_or_else(|| panic!("{line}")),
            }
        };
        History { calls: lines.iter().map(call).collect() }
    }
}
