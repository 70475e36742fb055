//! Tables and durations as text.

use crate::ended::Ended;
use crate::output::{self, visible};
use std::io::Write;
use std::time::Duration;
use tabwriter::TabWriter;

/// Prints rows of cells in columns.
pub fn print(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> Result<(), Ended> {
    let mut table = TabWriter::new(Vec::new()).padding(2);
    writeln!(table, "{}", head.join("\t"))?;
    for row in rows {
        let cells: Vec<String> = row.iter().map(|cell| visible(cell)).collect();
        writeln!(table, "{}", cells.join("\t"))?;
    }
    table.flush()?;
    let table = table.into_inner().map_err(|error| Ended::new(1, error))?;
    output::print(String::from_utf8_lossy(&table))
}

/// A duration in its two largest units: `4s`, `2m05s`, `3h20m`, `5d11h`.
pub fn age(time: Duration) -> String {
    let seconds = time.as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, minutes) => format!("{minutes}m{:02}s", seconds % 60),
        (0, hours, minutes) => format!("{hours}h{:02}m", minutes % 60),
        (days, hours, _) => format!("{days}d{:02}h", hours % 24),
    }
}

/// A cell without a value.
pub const NONE: &str = "-";

/// The duration, or the sign for none.
pub fn age_or_none(time: Option<Duration>) -> String {
    time.map_or_else(|| NONE.to_owned(), age)
}

/// Milliseconds, as JSON has them.
pub fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_has_its_two_largest_units() {
        let texts =
            [0, 59, 60, 125, 3_599, 3_600, 12_000, 86_400, 471_600].map(|s| age(Duration::from_secs(s)));
        assert_eq!(texts, ["0s", "59s", "1m00s", "2m05s", "59m59s", "1h00m", "3h20m", "1d00h", "5d11h"]);
    }
}
