//! A server whose clock a test sets, or a process of a test that sets its own, by libfaketime, where that is installed.

use super::{Environment, Server};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, UNIX_EPOCH};

/// How long a server may take to start under libfaketime; it hangs some.
const START: Duration = Duration::from_secs(5);

const NO_LIBRARY: &str = "needs libfaketime (apt: faketime, dnf, apk: libfaketime)";

/// The variable that names the file in which a clock is.
const FILE: &str = "FAKETIME_TIMESTAMP_FILE";

/// The clock of one server.
pub struct Clock {
    file: PathBuf,
    server: redis::Client,
}

impl Clock {
    /// Sets it: so many seconds ahead of this machine's, or behind it. Returns when scripts see that.
    pub fn set(&self, ahead: i64) {
        self.write(ahead);
        let mut con = self.server.get_connection().unwrap();
        super::eventually("scripts see the time", || {
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

/// In one step, since the file is read whenever somebody asks for the time.
fn write(file: &Path, ahead: i64) {
    let next = file.with_extension("next");
    std::fs::write(&next, format!("{ahead:+}")).unwrap();
    std::fs::rename(next, file).unwrap();
}

/// What a process is told that has this library, and its clock in this file.
fn variables(preload: &str, file: &Path) -> Environment {
    vec![
        ("LD_PRELOAD".into(), preload.into()),
        (FILE.into(), file.into()),
        ("FAKETIME_NO_CACHE".into(), "1".into()),
        // No machine's monotonic clock steps.
        ("FAKETIME_DONT_FAKE_MONOTONIC".into(), "1".into()),
    ]
}

/// Gives a process that is to be started a clock of its own, right at first; `set_own` sets it there.
pub fn give_own(command: &mut Command, folder: &Path) -> Result<(), String> {
    let library = library().ok_or(NO_LIBRARY)?;
    let file = folder.join("clock");
    write(&file, 0);
    command.envs(variables(&library, &file));
    Ok(())
}

/// Sets the clock of this process, which was given one of its own: so many seconds ahead.
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
    /// A server of the test's own with a clock of its own, right at first. Without libfaketime, or with a server that does not
    /// start under it, the reason why there is none.
    pub fn with_clock() -> Result<(Server, Clock), String> {
        let Some(library) = library() else {
            return Err(NO_LIBRARY.to_owned());
        };
        // Where jemalloc is a library of its own, the two wait for each other's start: then the C library's malloc has to
        // come before it. Others have to have the one that they were built with.
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

/// Where libfaketime is.
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
