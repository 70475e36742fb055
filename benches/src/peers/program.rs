//! The program of a peer while it runs a scene.

use super::peer::Peer;
use super::stays::{self, Stay};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Duration;

/// The maximum time until a program is ready.
const START: Duration = Duration::from_secs(30);

/// The number of characters kept from each end of a long text.
const HALF: usize = 120;

pub struct Program {
    child: Child,
    stdin: ChildStdin,
    lines: Receiver<String>,
    stderr: Option<JoinHandle<String>>,
}

impl Program {
    /// Starts the program, and waits until it is ready.
    pub fn start(peer: &Peer, arguments: &[String]) -> Result<Program, String> {
        let mut command = peer.run(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| error.to_string())?;
        let (Some(stdin), Some(stdout), Some(mut stderr)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err("no pipes".to_owned());
        };
        let (tell, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let _ = tell.send(line);
            }
        });
        let stderr = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = stderr.read_to_end(&mut bytes);
            String::from_utf8_lossy(&bytes).into_owned()
        });
        let mut program = Program { child, stdin, lines, stderr: Some(stderr) };
        while program.says(START)? != "ready" {}
        Ok(program)
    }

    /// Runs the scene within this time limit.
    pub fn play(&mut self, bound: Duration) -> Result<Vec<Stay>, String> {
        writeln!(self.stdin).map_err(|error| error.to_string())?;
        let line = self.says(bound)?;
        stays::read(&line).ok_or_else(|| format!("unexpected output: {}", gist(&line)))
    }

    /// The next line of output.
    fn says(&mut self, bound: Duration) -> Result<String, String> {
        match self.lines.recv_timeout(bound) {
            Ok(line) => Ok(line),
            Err(RecvTimeoutError::Timeout) => Err(format!("did not finish within {} s", bound.as_secs())),
            Err(RecvTimeoutError::Disconnected) => Err(format!("failed: {}", self.why())),
        }
    }

    /// Its standard error in one line.
    fn why(&mut self) -> String {
        let _ = self.child.kill();
        let said = self.stderr.take().and_then(|thread| thread.join().ok());
        gist(&said.unwrap_or_default())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The beginning and the end of a text, in one line.
pub fn gist(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let all: Vec<char> = words.join(" ").chars().collect();
    if all.len() <= 2 * HALF {
        return all.into_iter().collect();
    }
    let half = |part: &[char]| part.iter().collect::<String>();
    format!("{} … {}", half(&all[..HALF]), half(&all[all.len() - HALF..]))
}
