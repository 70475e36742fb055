//! The result of a check, and how results are printed.

use crate::ended::Ended;
use crate::output::{self, visible};
use serde_json::{Value, json};

/// The result of a check, from the best to the worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Grade {
    Ok,
    Warning,
    Broken,
}

impl Grade {
    fn as_str(self) -> &'static str {
        match self {
            Grade::Ok => "ok",
            Grade::Warning => "warning",
            Grade::Broken => "broken",
        }
    }

    /// The exit status.
    pub fn status(self) -> u8 {
        match self {
            Grade::Ok => 0,
            Grade::Warning => 1,
            Grade::Broken => 2,
        }
    }
}

/// The result of a check with its reason. `advice`: the consequence, and the change to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement {
    pub grade: Grade,
    pub found: String,
    pub advice: Option<String>,
}

pub fn ok(found: impl Into<String>) -> Judgement {
    Judgement { grade: Grade::Ok, found: found.into(), advice: None }
}

pub fn warning(found: impl Into<String>, advice: impl Into<String>) -> Judgement {
    Judgement { grade: Grade::Warning, found: found.into(), advice: Some(advice.into()) }
}

pub fn broken(found: impl Into<String>, advice: impl Into<String>) -> Judgement {
    Judgement { grade: Grade::Broken, found: found.into(), advice: Some(advice.into()) }
}

/// The results of all checks of all servers, in their order.
#[derive(Default)]
pub struct Report(Vec<Line>);

struct Line {
    server: String,
    check: &'static str,
    judgement: Judgement,
}

impl Report {
    pub fn add(&mut self, server: &str, check: &'static str, judgement: Judgement) {
        self.0.push(Line { server: server.to_owned(), check, judgement });
    }

    /// The worst result.
    pub fn grade(&self) -> Grade {
        self.0.iter().map(|line| line.judgement.grade).max().unwrap_or(Grade::Ok)
    }

    pub fn print(&self, as_json: bool) -> Result<(), Ended> {
        if as_json {
            return output::print(output::json(&self.json()));
        }
        let is_several =
            self.0.iter().any(|line| self.0.first().is_some_and(|first| first.server != line.server));
        if self.0.is_empty() {
            return Ok(());
        }
        let lines: Vec<String> = self.0.iter().map(|line| line.text(is_several)).collect();
        output::print(lines.join("\n"))
    }

    fn json(&self) -> Value {
        let checks = self.0.iter().map(|Line { server, check, judgement }| {
            let Judgement { grade, found, advice } = judgement;
            json!({ "server": server, "check": check, "result": grade.as_str(), "found": found, "advice": advice })
        });
        json!({ "status": self.grade().as_str(), "checks": checks.collect::<Vec<_>>() })
    }
}

impl Line {
    /// The result as one line, with the server if there are several.
    fn text(&self, with_server: bool) -> String {
        let Judgement { grade, found, advice } = &self.judgement;
        let server = if with_server { format!("{}  ", self.server) } else { String::new() };
        let advice = advice.as_ref().map_or_else(String::new, |advice| format!(". {advice}"));
        let text = format!("{:<7}  {server}{:<11}  {found}{advice}", grade.as_str(), self.check);
        // The text of a server may contain anything. One result is one line.
        visible(&text.replace(['\r', '\n'], " "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_one_line_and_the_worst_counts() {
        let mut report = Report::default();
        assert_eq!(report.grade(), Grade::Ok);
        report.add("a", "version", ok("Redis 8"));
        report.add("a", "clock", warning("one\r\ntwo", "Do this"));
        assert_eq!(report.grade(), Grade::Warning);
        let texts: Vec<String> = report.0.iter().map(|line| line.text(false)).collect();
        assert_eq!(texts, ["ok       version      Redis 8", "warning  clock        one  two. Do this"]);
        report.add("b", "scripts", broken("no", "Yes"));
        assert_eq!(report.grade().status(), 2);
        assert_eq!(report.json()["checks"][2]["server"], "b");
    }
}
