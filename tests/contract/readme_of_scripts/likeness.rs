//! Whether the real output matches the page.
//!
//! Words, numbers of fields and other numbers must be equal. Fences, tickets and times differ in each run, so
//! these rules apply:
//! - A number of 16 digits is a fence or a ticket. Two that are equal on the page must be equal here, and two
//!   that differ must differ.
//! - `now` must be a server time during the command.
//! - Another number of 13 digits is a time. It is as far from `now` as on the page. If it appeared before, it
//!   is the same time as then.
//! - `retry_after` and `next_expiry` are equal, or lead to the same time as on the page.

use super::reply::{Kind, Shown, Value};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

#[derive(Default)]
pub struct Likeness {
    fences: BTreeMap<i64, i64>,
    times: BTreeMap<i64, i64>,
}

/// `now` as shown, and the real one.
type Now = Option<(i64, i64)>;

fn check(is_so: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    is_so.then_some(()).ok_or_else(what)
}

fn digits(number: i64) -> usize {
    number.to_string().len()
}

impl Likeness {
    /// A command with the fences and tickets of this run inserted.
    pub fn here(&self, command: &str) -> String {
        let mut command = command.to_owned();
        for (shown, real) in &self.fences {
            command = command.replace(&shown.to_string(), &real.to_string());
        }
        command
    }

    /// Compares values with these names. `ran` is the time range of the command by the server's clock.
    pub fn compare(
        &mut self,
        shown: &[Shown],
        real: &[Value],
        names: &[String],
        ran: &RangeInclusive<i64>,
    ) -> Result<(), String> {
        check(shown.len() == real.len(), || format!("{} fields are shown, not {real:?}", shown.len()))?;
        let now = names.iter().position(|name| name == "now");
        let now = now.and_then(|at| match (&shown[at].kind, &real[at]) {
            (Kind::Word(word), Value::Number(real)) => Some((word.parse().ok()?, *real)),
            _ => None,
        });
        if let Some((_, now)) = now {
            check(ran.contains(&now), || format!("now: {now}, not in {ran:?}"))?;
        }
        for (at, (shown, real)) in shown.iter().zip(real).enumerate() {
            let name = names.get(at).map_or("", String::as_str);
            self.value(shown, real, name, now)?;
        }
        Ok(())
    }

    fn value(&mut self, shown: &Shown, real: &Value, name: &str, now: Now) -> Result<(), String> {
        match (&shown.kind, real) {
            (Kind::List(shown), Value::List(real)) => {
                check(shown.len() == real.len(), || format!("{} in a list, not {real:?}", shown.len()))?;
                let mut pairs = shown.iter().zip(real);
                pairs.try_for_each(|(shown, real)| self.value(shown, real, "", now))
            }
            (Kind::Word(shown), Value::Text(real)) => {
                check(shown == real, || format!("{shown} is shown, not {real}"))
            }
            (Kind::Word(word), Value::Number(real)) => {
                let shown = word.parse().map_err(|_| format!("{word}, not {real}"))?;
                self.number(shown, *real, name, now)
            }
            (_, real) => Err(format!("{name} is shown with another type than {real:?}")),
        }
    }

    fn number(&mut self, shown: i64, real: i64, name: &str, now: Now) -> Result<(), String> {
        let differs = || format!("{name}: {shown} is shown, not {real}");
        let alike = match (digits(shown), now) {
            (13 | 16, _) if digits(shown) != digits(real) => false,
            (16, _) => {
                let is_new = !self.fences.values().any(|other| *other == real);
                let known = self.fences.get(&shown).copied();
                self.fences.insert(shown, real);
                known.map_or(is_new, |known| known == real)
            }
            (13, Some(_)) if name == "now" => true,
            (13, now) => match (self.times.get(&shown), now) {
                (Some(known), _) => *known == real,
                (None, Some((shown_now, real_now))) => {
                    self.times.insert(shown, real);
                    shown - shown_now == real - real_now
                }
                (None, None) => {
                    return Err(differs() + ", and has no `now`");
                }
            },
            (_, Some((shown_now, real_now))) if matches!(name, "retry_after" | "next_expiry") => {
                match self.times.get(&(shown_now + shown)) {
                    Some(time) => *time == real_now + real,
                    None => shown == real,
                }
            }
            _ => shown == real,
        };
        check(alike, differs)
    }
}
