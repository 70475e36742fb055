//! The table in `clients/README.md`: which client survives which fault, and why a fault cannot happen to a
//! client.

use super::client::Client;
use super::language::ROOT;
use super::table::{EXCEPTIONS, FAULTS, MORE};
use libtest_mimic::Failed;
use std::fmt::Write;

const BEGIN: &str = "<!-- faults: begin -->\n";
const END: &str = "<!-- faults: end -->";

/// Each client, and the head of its column.
const COLUMNS: [(&str, &str); 7] = [
    ("rust", "Rust"),
    ("rust_async", "Rust, async"),
    ("python", "Python"),
    ("asyncio", "asyncio"),
    ("javascript", "JavaScript"),
    ("go", "Go"),
    ("java", "Java"),
];

/// The table, generated from the faults that are run with the drivers.
fn table() -> String {
    let mut reasons: Vec<&str> = Vec::new();
    let mut text = String::from("| fault |");
    COLUMNS.iter().for_each(|(_, head)| write!(text, " {head} |").unwrap());
    text += "\n|---|";
    text += &"---|".repeat(COLUMNS.len());
    for fault in FAULTS.iter().chain(&MORE) {
        write!(text, "\n| {} |", fault.name.replace('_', " ")).unwrap();
        for (client, _) in COLUMNS {
            let found =
                EXCEPTIONS.iter().find(|(name, clients, _)| *name == fault.name && clients.contains(&client));
            let Some((_, _, why)) = found else {
                text += " ✓ |";
                continue;
            };
            let place = reasons.iter().position(|reason| reason == why).unwrap_or_else(|| {
                reasons.push(why);
                reasons.len() - 1
            });
            write!(text, " {} |", place + 1).unwrap();
        }
    }
    text += "\n\nA number stands for a fault that cannot happen to this client, that it reports on purpose, or that is to be \
             repaired:\n\n";
    for (place, reason) in reasons.iter().enumerate() {
        let mut letters = reason.chars();
        let first = letters.next().into_iter().flat_map(char::to_uppercase);
        writeln!(text, "{}. {}{}.", place + 1, first.collect::<String>(), letters.as_str()).unwrap();
    }
    text
}

/// With `LUAGATE_RECORD` it writes the table.
pub fn is_current(clients: &[Client]) -> Result<(), Failed> {
    for client in clients {
        assert!(COLUMNS.iter().any(|(name, _)| *name == client.base()), "{} has no column", client.name);
    }
    let path = format!("{ROOT}/clients/README.md");
    let text = std::fs::read_to_string(&path)?;
    let (before, rest) = text.split_once(BEGIN).ok_or("no place for the table")?;
    let (now, after) = rest.split_once(END).ok_or("the table has no end")?;
    let table = table();
    if std::env::var_os("LUAGATE_RECORD").is_some() {
        std::fs::write(&path, format!("{before}{BEGIN}{table}{END}{after}"))?;
    } else if now != table {
        return Err(format!(
            "{path} is not up to date. Run `LUAGATE_RECORD=1 cargo test -p luagate-languages -- table`"
        )
        .into());
    }
    Ok(())
}
