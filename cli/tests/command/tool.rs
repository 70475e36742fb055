//! The command as a process, and scripts that it runs.

use crate::support::{SOON, Server, eventually, leftovers, within};
use luagate::Semaphore;
use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// The command for this server, without variables of the environment that it reads.
pub fn luagate(server: &Server) -> Command {
    let mut command = bare();
    command.env("LUAGATE_URL", &server.url).env("LUAGATE_PREFIX", &server.prefix);
    command
}

/// The command without an address. Each signal has its default effect, though a shell may ignore some of them
/// for its jobs in the background, and with them for these tests.
pub fn bare() -> Command {
    let program = env!("CARGO_BIN_EXE_luagate");
    let mut command = Command::new(program);
    if cfg!(target_os = "linux") {
        command = Command::new("env");
        command.args(["--default-signal", program]);
    }
    for name in [
        "LUAGATE_URL",
        "REDIS_URL",
        "LUAGATE_PASSWORD_FILE",
        "LUAGATE_PREFIX",
        "LUAGATE_NAME",
        "LUAGATE_HELD",
    ] {
        command.env_remove(name);
    }
    command.env(leftovers::MARK, leftovers::mark()).stdin(Stdio::null());
    command
}

pub trait Run {
    /// Runs it to its end.
    fn done(&mut self) -> Output;
    /// Starts it, with its output captured.
    fn started(&mut self) -> Running;
}

impl Run for Command {
    #[track_caller]
    fn done(&mut self) -> Output {
        self.output().unwrap()
    }

    fn started(&mut self) -> Running {
        Running(Some(self.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()))
    }
}

/// A process that is ended with the test.
pub struct Running(Option<Child>);

impl Running {
    pub fn id(&self) -> u32 {
        self.0.as_ref().unwrap().id()
    }

    /// Sends it a signal, such as `TERM`.
    pub fn signal(&self, signal: &str) {
        assert!(signal_to(self.id(), signal), "{signal}");
    }

    /// Writes into its input, which is a pipe.
    pub fn type_in(&mut self, text: &str) {
        self.0.as_mut().unwrap().stdin.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
    }

    pub fn close_input(&mut self) {
        drop(self.0.as_mut().unwrap().stdin.take());
    }

    pub fn is_running(&mut self) -> bool {
        self.0.as_mut().unwrap().try_wait().unwrap().is_none()
    }

    /// Its status and output, after its end.
    #[track_caller]
    pub fn output(mut self) -> Output {
        let mut child = self.0.take().unwrap();
        let ended = within(3 * SOON, || child.try_wait().unwrap());
        if ended.is_none() {
            let _ = child.kill();
        }
        let output = child.wait_with_output().unwrap();
        assert!(ended.is_some(), "still running: {output:?}");
        output
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Whether the process exists and got the signal.
pub fn signal_to(process: u32, signal: &str) -> bool {
    let arguments = [format!("-{signal}"), "--".to_owned(), process.to_string()];
    Command::new("kill").args(arguments).stderr(Stdio::null()).status().unwrap().success()
}

pub trait Text {
    fn out(&self) -> String;
    fn err(&self) -> String;
    /// The exit status, or 128 + n if signal n has ended the process, as a shell shows it.
    fn code(&self) -> i32;
}

impl Text for Output {
    fn out(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    fn err(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    #[track_caller]
    fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| 128 + self.status.signal().unwrap())
    }
}

/// A file that a test and the processes that it starts share.
pub struct Shared {
    folder: tempfile::TempDir,
}

impl Shared {
    pub fn new() -> Shared {
        Shared { folder: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The text of a file, once it ends with a new line.
    #[track_caller]
    pub fn text(&self, name: &str) -> String {
        let read = || std::fs::read_to_string(self.path(name)).ok().filter(|text| text.ends_with('\n'));
        within(SOON, read).unwrap_or_else(|| panic!("{name} was not written"))
    }

    /// An executable script for `sh`.
    pub fn script(&self, name: &str, text: &str) -> PathBuf {
        use std::os::unix::fs::PermissionsExt;
        let path = self.path(name);
        // By another process: no thread of this test that starts a process at the moment keeps it open for
        // writing.
        let made = Command::new("sh")
            .args(["-c", "printf '%s' \"$1\" >\"$2\"", "sh"])
            .arg(format!("#!/bin/sh\n{text}\n"))
            .arg(&path)
            .status();
        assert!(made.unwrap().success());
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }
}

/// Blocks until this many callers wait in line.
#[track_caller]
pub fn waits(semaphore: &Semaphore, count: u64) {
    eventually("the waiters", || (semaphore.inspect().unwrap().waiter_count == count).then_some(()));
}

/// Arguments from words.
pub fn words(text: &str) -> impl Iterator<Item = &OsStr> {
    text.split_whitespace().map(OsStr::new)
}
