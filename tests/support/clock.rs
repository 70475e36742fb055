//! A server whose clock a test can set, or a process of a test that sets its own clock. Both use libfaketime,
//! if it is installed.

use super::{Environment, Server};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, UNIX_EPOCH};

/// The maximum start time of a server under libfaketime. Some servers hang there.
const START: Duration = Duration::from_secs(5);

const NO_LIBRARY: &str = "needs libfaketime (apt: faketime, dnf, apk: libfaketime)";

/// The environment variable with the path of the clock file.
const FILE: &str = "FAKETIME_TIMESTAMP_FILE";

/// The clock of one server.
pub struct Clock {
    file: PathBuf,
    server: redis::Client,
}

impl Clock {
    /// Sets the clock to this number of seconds ahead of the machine's; negative: behind it. Returns when
    /// scripts see the new time.
    pub fn set(&self, ahead: i64) {
        self.write(ahead);
        let mut con = self.server.get_connection().unwrap();
        super::eventually("scripts see the new time", || {
            let mut time = redis::cmd("EVAL");
            time.arg("return redis.call('TIME')[1]").arg(0);
            let time: i64 = time.query(&mut con).unwrap();
            let here = UNIX_EPOCH.elapsed().unwrap().as_secs() as i64;
            ((time - here - ahead).abs() < 60).then_some(())
        });
    }

    fn write(&self, ahead: i64) {
        write(&self.file, ahead);
    }
}

/// In one step, because every call that reads the time can read the file.
fn write(file: &Path, ahead: i64) {
    let next = file.with_extension("next");
    std::fs::write(&next, format!("{ahead:+}")).unwrap();
    std::fs::rename(next, file).unwrap();
}

/// The environment of a process with this library and its clock in this file.
fn variables(preload: &str, file: &Path) -> Environment {
    vec![
        ("LD_PRELOAD".into(), preload.into()),
        (FILE.into(), file.into()),
        ("FAKETIME_NO_CACHE".into(), "1".into()),
        // The monotonic clock of a machine never steps.
        ("FAKETIME_DONT_FAKE_MONOTONIC".into(), "1".into()),
    ]
}

/// Gives a process that will be started its own clock, initially correct. `set_own` sets it there.
pub fn give_own(command: &mut Command, folder: &Path) -> Result<(), String> {
    let library = library().ok_or(NO_LIBRARY)?;
    let file = folder.join("clock");
    write(&file, 0);
    command.envs(variables(&library, &file));
    Ok(())
}

/// Sets the clock of a process, prepared by `give_own`, to this number of seconds ahead.
pub fn set(folder: &Path, ahead: i64) {
    write(&folder.join("clock"), ahead);
}

/// Sets the clock of this process, prepared by `give_own`, to this number of seconds ahead.
pub fn set_own(ahead: i64) {
    let before = UNIX_EPOCH.elapsed().unwrap();
    let began = Instant::now();
    write(&PathBuf::from(std::env::var_os(FILE).unwrap()), ahead);
    super::eventually("the clock has stepped", || {
        let stepped = UNIX_EPOCH.elapsed().unwrap().abs_diff(before);
        (stepped > began.elapsed() + super::SOON).then_some(())
    });
}

impl Server {
    /// A private server with its own clock, initially correct. Without libfaketime, or if the server does not
    /// start under it, returns the reason.
    pub fn with_clock() -> Result<(Server, Clock), String> {
        let Some(library) = library() else {
            return Err(NO_LIBRARY.to_owned());
        };
        // If the server loads jemalloc as a shared library, the two libraries deadlock at the start. Loading
        // the C library's malloc first prevents this. Other servers need the malloc they were built with.
        for preload in [format!("{library} libc.so.6"), library] {
            let environment = |folder: &Path| variables(&preload, &folder.join("clock"));
            let Some(mut server) = Server::start_in(&[], "0", environment) else {
                return Err(super::NO_BINARY.to_owned());
            };
            let clock = Clock {
                file: server.private_mut().folder.path().join("clock"),
                server: redis::Client::open(server.socket_url()).unwrap(),
            };
            clock.write(0);
            if server.becomes_ready_within(START) == Some(true) {
                return Ok((server, clock));
            }
        }
        Err("needs a server that starts under libfaketime; this one does not".to_owned())
    }
}

/// The path of libfaketime.
fn library() -> Option<String> {
    let machine = std::env::consts::ARCH;
    let folders = [
        format!("/usr/lib/{machine}-linux-gnu/faketime"),
        "/usr/lib64/faketime".to_owned(),
        "/usr/lib/faketime".to_owned(),
    ];
    let files = folders.map(|folder| format!("{folder}/libfaketime.so.1"));
    files.into_iter().find(|file| Path::new(file).is_file())
}
