//! A shell that runs the page's commands, and a subscription in another process, on the test's private
//! server.

use crate::support::SOON;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use tempfile::TempDir;

/// The path of a program on the PATH.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let files = std::env::split_paths(&path).map(|folder| folder.join(program));
    files.into_iter().find(|file| file.is_file())
}

/// A process whose output is read line by line.
struct Process {
    child: Child,
    lines: Receiver<String>,
}

impl Process {
    fn start(command: &mut Command) -> Process {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            let mut lines = output.lines().map_while(Result::ok);
            lines.try_for_each(|line| sender.send(line))
        });
        Process { child, lines }
    }

    fn line(&self) -> String {
        let line = self.lines.recv_timeout(SOON);
        line.unwrap_or_else(|_| panic!("no output within {SOON:?}"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub struct Shell {
    process: Process,
    stdin: ChildStdin,
    /// Contains a `redis-cli` that runs the real one with the server's socket.
    folder: TempDir,
}

impl Shell {
    /// Starts a shell in this folder.
    pub fn start(folder: &Path, redis_cli: &Path, socket: &str) -> Shell {
        let bin = tempfile::tempdir().unwrap();
        let file = bin.path().join("redis-cli");
        // Replies are printed with their types, as on a terminal.
        let script = format!(
            "#!/bin/sh\n[ \"$1\" != EVALSHA ] || set -- --no-raw \"$@\"\nexec '{}' -s '{socket}' \"$@\"\n",
            redis_cli.display()
        );
        std::fs::write(&file, script).unwrap();
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o755)).unwrap();
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = std::iter::once(bin.path().to_owned()).chain(std::env::split_paths(&path));
        let path = std::env::join_paths(folders).unwrap();
        let mut sh = Command::new("sh");
        let sh = sh.current_dir(folder).env("PATH", path);
        let mut process = Process::start(sh.stdin(Stdio::piped()));
        let stdin = process.child.stdin.take().unwrap();
        let mut shell = Shell { process, stdin, folder: bin };
        shell.run("exec 2>&1");
        shell
    }

    /// Runs a command and returns its output. The command must succeed.
    pub fn run(&mut self, command: &str) -> String {
        const END: &str = "the end, with status";
        let text = format!("{command}\nprintf '\\n%s %s\\n' '{END}' $?\n");
        self.stdin.write_all(text.as_bytes()).unwrap();
        let mut output = Vec::new();
        loop {
            let line = self.process.line();
            if let Some(status) = line.strip_prefix(END) {
                let output = output.join("\n").trim_end().to_owned();
                assert_eq!(status, " 0", "{command}: {output}");
                return output;
            }
            output.push(line);
        }
    }

    /// Runs `redis-cli SUBSCRIBE` in another process.
    pub fn subscribe(&self, channel: &str) -> Subscription {
        let mut command = Command::new(self.folder.path().join("redis-cli"));
        let process = Process::start(command.args(["SUBSCRIBE", channel]).stdin(Stdio::null()));
        let subscription = Subscription { process };
        subscription.expect(&["subscribe", channel, "1"]);
        subscription
    }
}

pub struct Subscription {
    process: Process,
}

impl Subscription {
    fn expect(&self, lines: &[&str]) {
        for line in lines {
            assert_eq!(self.process.line(), *line);
        }
    }

    /// Waits for the next message.
    pub fn message(&self, channel: &str) -> String {
        self.expect(&["message", channel]);
        self.process.line()
    }
}
