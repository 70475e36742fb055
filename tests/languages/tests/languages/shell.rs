//! The command `with-permit`. Each test runs with each shell.

mod arguments;
mod command;
mod lease;
mod limits;
mod server;
mod signals;

use super::language::ROOT;
use crate::support::leftovers::{MARK, mark};
use crate::support::{Server, eventually, within};
use libtest_mimic::Failed;
use luagate::{Gate, Semaphore};
use std::ffi::OsString;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// The shells that are `/bin/sh` on most systems.
pub const SHELLS: [&str; 2] = ["dash", "bash"];

type Shell = &'static str;
type Test = (&'static str, fn(Shell) -> Result<(), Failed>);

/// The name of each test, and the test.
pub fn tests() -> Vec<Test> {
    [&arguments::TESTS[..], &command::TESTS, &lease::TESTS, &limits::TESTS, &server::TESTS, &signals::TESTS].concat()
}

/// Exit statuses of `with-permit` itself.
const INVALID: i32 = 64;
const NO_REPLY: i32 = 69;
const TIMED_OUT: i32 = 75;
const LOST: i32 = 79;

/// The reason why it cannot run on this machine.
pub fn missing(shell: Shell) -> Option<String> {
    let runs = |program: &str| Command::new(program).args(["-c", ":"]).output().is_ok();
    let version = Command::new("redis-cli").arg("--version").output();
    if version.is_err() {
        return Some("no redis-cli".to_owned());
    }
    (!runs(shell)).then(|| format!("no {shell}"))
}

/// Runs the script in this shell with these arguments. If `env` can do that, it does not inherit ignored signals.
fn script(shell: Shell, url: &str, arguments: &[&str]) -> Command {
    let reset = ["--default-signal=HUP,INT,QUIT,TERM", shell];
    let probe = Command::new(found("env")).args(reset).args(["-c", ":"]).output();
    let mut command = match probe {
        Ok(output) if output.status.success() => {
            let mut command = Command::new(found("env"));
            command.args(reset);
            command
        }
        _ => Command::new(shell),
    };
    command
        .arg(format!("{ROOT}/clients/shell/with-permit"))
        .args(arguments)
        .env("REDIS_URL", url)
        .env(MARK, mark())
        .current_dir(ROOT)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    for name in ["LEASE", "KIND", "PREFIX", "LABEL", "LUA"] {
        command.env_remove(format!("LUAGATE_{name}"));
    }
    command
}

/// Runs a shell command with a permit of the semaphore `batch`, which has this limit.
fn with_permit(shell: Shell, url: &str, limit: u32, seconds: impl ToString, line: &str) -> Command {
    let (limit, seconds) = (limit.to_string(), seconds.to_string());
    let arguments = ["batch", &limit, &seconds, "sh", "-c", line];
    script(shell, url, &arguments)
}

/// A server, and its semaphore `batch`.
struct Scene {
    shell: Shell,
    server: Server,
    semaphore: Semaphore,
}

impl Scene {
    fn new(shell: Shell) -> Scene {
        let server = crate::server();
        let gate = Gate::open(&server.url).unwrap();
        Scene { shell, server, semaphore: gate.semaphore("batch", 2) }
    }

    fn with_permit(&self, limit: u32, seconds: impl ToString, line: &str) -> Command {
        with_permit(self.shell, &self.server.url, limit, seconds, line)
    }

    fn in_use(&self) -> u32 {
        self.semaphore.inspect().unwrap().in_use
    }

    fn waiter_count(&self) -> u64 {
        self.semaphore.inspect().unwrap().waiter_count
    }

    fn waits_for(&self, in_use: u32) {
        eventually("this number of permits is held", || (self.in_use() == in_use).then_some(()));
    }
}

/// A file that commands write to.
struct Log {
    path: PathBuf,
    _folder: TempDir,
}

impl Log {
    fn new() -> Log {
        let folder = tempfile::tempdir().unwrap();
        Log { path: folder.path().join("log"), _folder: folder }
    }

    fn text(&self) -> String {
        std::fs::read_to_string(&self.path).unwrap_or_default()
    }

    fn lines(&self) -> Vec<String> {
        self.text().lines().map(str::to_owned).collect()
    }

    /// Waits until there are this number of lines.
    #[track_caller]
    fn has_lines(&self, count: usize) {
        eventually("a line is written", || (self.text().matches('\n').count() >= count).then_some(()));
    }
}

/// A folder that contains only these programs, for the variable PATH.
fn only(programs: &[&str]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for program in programs {
        std::os::unix::fs::symlink(found(program), folder.path().join(program)).unwrap();
    }
    folder
}

fn found(program: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap();
    let mut files = std::env::split_paths(&path).map(|folder| folder.join(program));
    files.find(|file| file.is_file()).expect("a program")
}

/// Puts a program written in shell into a folder.
fn put_program(folder: &Path, name: &str, text: &str) {
    use std::os::unix::fs::PermissionsExt;
    let path = folder.join(name);
    std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// The variable PATH, with this folder first.
fn before_path(folder: &Path) -> OsString {
    let path = std::env::var_os("PATH").unwrap();
    let folders = std::iter::once(folder.to_owned()).chain(std::env::split_paths(&path));
    std::env::join_paths(folders).unwrap()
}

fn end_of(child: &mut Child) -> ExitStatus {
    let ended = within(Duration::from_secs(30), || child.try_wait().unwrap());
    ended.expect("the process ends")
}

/// Waits for the end of the process, and returns its output.
fn output_of(child: &mut Child) -> Output {
    let status = end_of(child);
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    child.stdout.take().unwrap().read_to_end(&mut stdout).unwrap();
    child.stderr.take().unwrap().read_to_end(&mut stderr).unwrap();
    Output { status, stdout, stderr }
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The running processes with this process id or group id, without those that have ended and await their parent.
fn alive(id: &str) -> Vec<String> {
    let output = Command::new("ps").args(["-A", "-o", "stat=,pid=,pgid=,args="]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let found = text.lines().filter(|line| {
        let words: Vec<&str> = line.split_whitespace().take(3).collect();
        !words[0].starts_with('Z') && words[1..].contains(&id)
    });
    found.map(str::to_owned).collect()
}
