//! The permits that are acquired: of one name, or of several together.

use crate::args::{Limit, PermitArgs};
use crate::ended::Ended;
use clap::ArgMatches;
use luagate::admin::{self, Kind, Name};
use luagate::{Cancel, Gate, Lease, Permit, Semaphore, Ticket};
use std::time::Duration;

/// Longer than any program runs.
const FOREVER: Duration = Duration::from_secs(100 * 365 * 86_400);

/// A name, and how many of its permits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    pub name: Name,
    pub limit: Option<Limit>,
    permits: u32,
}

/// The names of the arguments. Each option `-n` or `-p` belongs to the next NAME; if there is only one, it
/// may come later.
pub fn of(args: &PermitArgs, matches: &ArgMatches) -> Result<Vec<Claim>, Ended> {
    let places = |id: &str| -> Vec<usize> { matches.indices_of(id).into_iter().flatten().collect() };
    let name_places = places("names");
    let limits = of_names("-n", &places("limit"), &args.limit, &name_places)?;
    let permits = of_names("-p", &places("permits"), &args.permits, &name_places)?;
    let claims = args.names.iter().zip(limits).zip(permits).map(|((name, limit), permits)| {
        let kind = match limit {
            _ if args.shared || args.exclusive => Kind::RwLock,
            Some(_) => Kind::Semaphore,
            None => Kind::Mutex,
        };
        // A writer takes all permits of the lock.
        let permits = if args.exclusive { crate::args::MOST as u32 } else { permits.unwrap_or(1) };
        Claim { name: Name { name: name.clone(), kind }, limit, permits }
    });
    Ok(claims.collect())
}

/// The value that each name has of an option.
fn of_names<T: Copy>(
    option: &str,
    places: &[usize],
    values: &[T],
    names: &[usize],
) -> Result<Vec<Option<T>>, Ended> {
    if let ([value], [_]) = (values, names) {
        return Ok(vec![Some(*value)]);
    }
    let mut left: Vec<(usize, T)> = places.iter().copied().zip(values.iter().copied()).collect();
    let mut found = Vec::with_capacity(names.len());
    for name in names {
        let before: Vec<T> = left.iter().filter(|(place, _)| place < name).map(|(_, value)| *value).collect();
        left.retain(|(place, _)| place > name);
        match before[..] {
            [] => found.push(None),
            [value] => found.push(Some(value)),
            _ => {
                return Err(Ended::usage(format!(
                    "{option} is given twice before a NAME. Accepted: once before each NAME"
                )));
            }
        }
    }
    if left.is_empty() {
        Ok(found)
    } else {
        Err(Ended::usage(format!("{option} has no NAME after it. Accepted: {option} before each NAME")))
    }
}

/// The settings that all semaphores of the arguments share.
pub struct Settings<'a> {
    pub args: &'a PermitArgs,
    pub label: &'a str,
    /// The id, if only one name is acquired.
    pub id: &'a str,
    pub cancel: &'a Cancel,
    /// Of a place in line to have again, if only one name is acquired.
    pub ticket: Option<Ticket>,
}

/// The semaphores of these claims, with the number of permits of each.
pub fn semaphores(
    gate: &Gate,
    claims: &[Claim],
    settings: &Settings,
    on_lost: impl Fn() + Clone + Send + Sync + 'static,
) -> Vec<(Semaphore, u32)> {
    let Settings { args, label, id, cancel, ticket } = settings;
    let semaphores = claims.iter().map(|claim| {
        let semaphore = match claim.limit {
            Some(Limit::Declared(limit)) => gate.semaphore(&claim.name.name, limit),
            Some(Limit::Stored) | None => admin::semaphore(gate, &claim.name),
        };
        let lost = on_lost.clone();
        let semaphore =
            semaphore.lease(Lease::renewed(args.lease)).cancelled_by(cancel).on_lost(move |_| lost());
        let semaphore = semaphore.head_start(args.head_start);
        // Of several at once, the library chooses the id.
        let semaphore = match (claims.len(), ticket) {
            (1, Some(ticket)) => semaphore.id(id).ticket(*ticket),
            (1, None) => semaphore.id(id),
            _ => semaphore.label(label),
        };
        let semaphore = match args.max_waiting {
            Some(most) => semaphore.max_waiting(most),
            None => semaphore,
        };
        let semaphore = match args.at_least {
            Some(least) if !least.is_zero() => semaphore.at_least(least),
            _ => semaphore,
        };
        (semaphore, claim.permits)
    });
    semaphores.collect()
}

/// Acquires the permits. Blocks for at most `wait`; zero: does not wait; `None`: without a limit.
pub fn acquire(
    gate: &Gate,
    semaphores: &[(Semaphore, u32)],
    wait: Option<Duration>,
) -> Result<Vec<Permit>, luagate::Error> {
    if let [(semaphore, permits)] = semaphores {
        let permit = match wait {
            Some(Duration::ZERO) => semaphore.try_acquire_many(*permits)?,
            Some(wait) => semaphore.acquire_many_timeout(*permits, wait)?,
            None => semaphore.acquire_many(*permits)?,
        };
        return Ok(vec![permit]);
    }
    let several = gate.several(semaphores.iter().map(|(semaphore, permits)| (semaphore, *permits)));
    let held = match wait {
        Some(Duration::ZERO) => several.try_acquire()?,
        wait => several.acquire_timeout(wait.unwrap_or(FOREVER))?,
    };
    Ok(held.into_permits())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Args;
    use clap::CommandFactory;
    use clap::FromArgMatches;

    fn claims(arguments: &str) -> Result<Vec<Claim>, Ended> {
        let words = ["luagate", "run"].into_iter().chain(arguments.split_whitespace()).chain(["--", "true"]);
        let matches = Args::command().try_get_matches_from(words).unwrap();
        let own = matches.subcommand().unwrap().1;
        of(&PermitArgs::from_arg_matches(own).unwrap(), own)
    }

    fn claim(name: &str, kind: Kind, limit: Option<Limit>, permits: u32) -> Claim {
        Claim { name: Name { name: name.to_owned(), kind }, limit, permits }
    }

    #[test]
    fn each_option_belongs_to_the_next_name() {
        let five = Some(Limit::Declared(5));
        assert_eq!(claims("a").unwrap(), [claim("a", Kind::Mutex, None, 1)]);
        assert_eq!(claims("a -n 5").unwrap(), [claim("a", Kind::Semaphore, five, 1)]);
        assert_eq!(claims("-n stored a").unwrap(), [claim("a", Kind::Semaphore, Some(Limit::Stored), 1)]);
        assert_eq!(claims("--shared a").unwrap(), [claim("a", Kind::RwLock, None, 1)]);
        let expected = [claim("a", Kind::Semaphore, five, 2), claim("b", Kind::Mutex, None, 1)];
        assert_eq!(claims("-n 5 -p 2 a b").unwrap(), expected);
        let expected = [claim("b", Kind::Mutex, None, 1), claim("a", Kind::Semaphore, five, 1)];
        assert_eq!(claims("b -n 5 a").unwrap(), expected);
    }

    #[test]
    fn an_option_without_a_name_is_a_usage_error() {
        for arguments in ["a b -n 5", "-n 5 -n 6 a b", "a b -p 2"] {
            assert_eq!(claims(arguments).unwrap_err().status, crate::ended::USAGE, "{arguments}");
        }
    }
}
