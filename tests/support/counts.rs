//! Command counts of a server.

use redis::Connection;

/// The number of calls of each command since the last `CONFIG RESETSTAT`.
pub fn command_counts(con: &mut Connection) -> std::collections::BTreeMap<String, u64> {
    let text: String = redis::cmd("INFO").arg("commandstats").query(con).unwrap();
    text.lines()
        .filter_map(|line| {
            let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
            Some((name.to_owned(), rest.split(',').next()?.parse().ok()?))
        })
        .collect()
}

/// Resets the counts.
pub fn reset_counts(con: &mut Connection) {
    redis::cmd("CONFIG").arg("RESETSTAT").exec(con).unwrap();
}

/// The number of commands run in scripts, and the number of scripts.
pub fn calls_in_scripts(con: &mut Connection) -> (u64, u64) {
    let counts = command_counts(con);
    let scripts = counts.get("evalsha").copied().unwrap_or(0);
    let outside = ["evalsha", "info", "config|resetstat", "config", "ping", "script|load", "script", "eval"];
    let inside =
        counts.iter().filter(|(name, _)| !outside.contains(&name.as_str())).map(|(_, count)| count).sum();
    (inside, scripts)
}
