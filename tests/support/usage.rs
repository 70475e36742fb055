//! The resources of a process according to /proc, and their growth between two times.

use std::fs;

/// One measurement of a process, or the medians of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub files: u64,
    pub threads: u64,
    pub memory_kb: u64,
}

impl Usage {
    /// For this process; `None` if it has ended.
    pub fn of(pid: u32) -> Option<Usage> {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let number = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()?.parse().ok()
        };
        Some(Usage {
            files: fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count() as u64,
            threads: number("Threads:")?,
            memory_kb: number("VmRSS:")?,
        })
    }

    /// The median of each value.
    pub fn median(looks: &[Usage]) -> Usage {
        let of = |field: fn(&Usage) -> u64| median(looks.iter().map(field));
        Usage {
            files: of(|look| look.files),
            threads: of(|look| look.threads),
            memory_kb: of(|look| look.memory_kb),
        }
    }
}

/// The median.
pub fn median(numbers: impl Iterator<Item = u64>) -> u64 {
    let mut numbers: Vec<u64> = numbers.collect();
    numbers.sort_unstable();
    numbers[numbers.len() / 2]
}
