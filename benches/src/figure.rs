//! A figure: a measured value, the value that it is compared with, and its limit.

use crate::server::Server;
use crate::version::version;
use std::fmt::{self, Write};

/// The limit of a ratio.
#[derive(Clone, Copy, Debug)]
pub enum Limit {
    AtMost(f64),
    AtLeast(f64),
    /// No limit; the figure explains another one.
    None,
}

#[derive(Clone, Debug)]
pub struct Figure {
    pub what: String,
    pub unit: &'static str,
    pub ours: f64,
    /// The name and the value of the comparison.
    pub beside: (&'static str, f64),
    pub ratio: f64,
    pub limit: Limit,
}

impl Figure {
    /// `None` if there is no limit.
    pub fn is_kept(&self) -> Option<bool> {
        match self.limit {
            Limit::AtMost(most) => Some(self.ratio <= most),
            Limit::AtLeast(least) => Some(self.ratio >= least),
            Limit::None => None,
        }
    }

    /// The cells of its row in the table.
    fn cells(&self) -> [String; 6] {
        let amount = |value: f64| match value {
            100.0.. => format!("{value:.0} {}", self.unit),
            _ => format!("{value:.2} {}", self.unit),
        };
        [
            self.what.clone(),
            amount(self.ours),
            self.beside.0.to_owned(),
            amount(self.beside.1),
            format!("{:.2}", self.ratio),
            match self.is_kept() {
                Some(true) => format!("{} kept", self.limit),
                Some(false) => format!("{} **not kept**", self.limit),
                None => self.limit.to_string(),
            },
        ]
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Limit::AtMost(most) => write!(f, "at most {most}"),
            Limit::AtLeast(least) => write!(f, "at least {least}"),
            Limit::None => write!(f, "no limit"),
        }
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [what, ours, beside, theirs, ratio, limit] = self.cells();
        write!(f, "{what}: {ours}; {beside}: {theirs}; ratio {ratio}, {limit}")
    }
}

/// A page with all figures.
pub fn page(server: &Server, figures: &[(&str, Figure)]) -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut page = String::from("# The cost of luagate\n\n");
    let _ = writeln!(
        page,
        "Written by `./dev bench`, on {} and {cores} cores, over TCP. The amounts depend on this machine. The ratio \
         compares each amount with another one that was measured in turns in the same run. All numbers are medians.\n",
        version(&mut server.connection()),
    );
    page.push_str("|| | what | | compared with | | ratio | limit ||\n|---|---|---|---|---|---|---|\n");
    for (title, figure) in figures {
        let _ = writeln!(page, "| {title} | {} |", figure.cells().join(" | "));
    }
    page
}
