//! The cost of a scene for the server: its processor time, and the commands that clients send.

use crate::counts::command_counts;
use redis::Connection;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, TcpStream};
use std::thread::JoinHandle;

/// Counters of the server since it started.
pub struct Usage {
    cpu_us: f64,
    calls: BTreeMap<String, u64>,
}

impl Usage {
    pub fn read(con: &mut Connection) -> Usage {
        let info: String = redis::cmd("INFO").arg("cpu").query(con).unwrap();
        let seconds = |name: &str| -> f64 {
            let line = info.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap().trim().parse().unwrap()
        };
        Usage {
            cpu_us: (seconds("used_cpu_sys:") + seconds("used_cpu_user:")) * 1e6,
            calls: command_counts(con),
        }
    }

    /// The processor time since `before`, in µs.
    pub fn cpu_us_since(&self, before: &Usage) -> f64 {
        self.cpu_us - before.cpu_us
    }

    /// How many commands clients sent since `before`. The server also counts commands within scripts.
    /// Therefore each command counts with the share that clients sent in the preliminary run.
    pub fn commands_since(&self, before: &Usage, glimpse: &Glimpse) -> f64 {
        let calls = self.calls.iter().filter(|(name, _)| *name != "info");
        calls
            .map(|(name, count)| {
                let count = count - before.calls.get(name).unwrap_or(&0);
                let name = name.split('|').next().unwrap_or_default();
                count as f64 * glimpse.share(name)
            })
            .sum()
    }
}

/// How often each command was sent by a client, and how often it ran within a script.
#[derive(Debug, Default)]
pub struct Glimpse(BTreeMap<String, (u64, u64)>);

impl Glimpse {
    /// The share of these commands that clients send. Commands that MONITOR hides never run in scripts.
    fn share(&self, name: &str) -> f64 {
        match self.0.get(name) {
            Some((sent, inside)) => *sent as f64 / (sent + inside) as f64,
            None => 1.0,
        }
    }

    /// Adds a line of MONITOR: `+1795205203.248677 [0 lua] "zadd" "key" ...`.
    fn add(&mut self, line: &str) {
        let Some((from, command)) = line.split_once("] \"") else {
            return;
        };
        let name = command.split('"').next().unwrap_or_default();
        let (sent, inside) = self.0.entry(name.to_lowercase()).or_default();
        *if from.ends_with(" lua") { inside } else { sent } += 1;
    }
}

/// Receives all commands of a server.
pub struct Monitor {
    stream: TcpStream,
    glimpse: JoinHandle<Glimpse>,
}

impl Monitor {
    pub fn start(address: &str) -> std::io::Result<Monitor> {
        let mut stream = TcpStream::connect(address)?;
        stream.write_all(b"MONITOR\r\n")?;
        let mut lines = BufReader::new(stream.try_clone()?);
        lines.read_line(&mut String::new())?; // +OK
        let glimpse = std::thread::spawn(move || {
            let mut glimpse = Glimpse::default();
            let mut line = Vec::new();
            while matches!(lines.read_until(b'\n', &mut line), Ok(read) if read > 0) {
                glimpse.add(&String::from_utf8_lossy(&line));
                line.clear();
            }
            glimpse
        });
        Ok(Monitor { stream, glimpse })
    }

    pub fn stop(self) -> Glimpse {
        let _ = self.stream.shutdown(Shutdown::Both);
        self.glimpse.join().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_counts_as_often_as_clients_sent_it() {
        let mut glimpse = Glimpse::default();
        for line in [
            "+1795205203.248677 [0 127.0.0.1:4711] \"SET\" \"k\" \"a] \\\"get\"",
            "+1795205203.248678 [0 lua] \"get\" \"k\"",
            "+1795205203.248679 [0 lua] \"get\" \"k\"",
            "+1795205203.248680 [0 lua] \"GET\" \"k\"",
            "+1795205203.248680 [0 lua] \"PUBSUB\" \"NUMSUB\" \"k\"",
            "+1795205203.248681 [0 unix:/tmp/socket] \"get\" \"k\"",
        ] {
            glimpse.add(line);
        }
        let usage = |calls: &[(&str, u64)]| Usage {
            cpu_us: 0.0,
            calls: calls.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect(),
        };
        let before = usage(&[("get", 8), ("info", 1)]);
        let after =
            usage(&[("get", 48), ("set", 5), ("client|tracking", 2), ("pubsub|numsub", 9), ("info", 7)]);
        assert_eq!(after.commands_since(&before, &glimpse), 10.0 + 5.0 + 2.0);
    }
}
