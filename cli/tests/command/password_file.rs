//! The file with the password, which is read at each connection: its content may change while the command
//! runs.

use super::keeping::{has_ended, is_locked, name};
use super::secrets::{CALLS, shows};
use super::signals::{mutex, script};
use super::tool::{Run, Shared, Text, bare, luagate, words};
use crate::own;
use crate::support::{Server, eventually};
use std::path::Path;
use std::time::{Duration, Instant};

const USER: &str = "clerk";

/// The user has only this password from now on, and its connections end.
fn rotate(server: &Server, password: &str) {
    let con = &mut server.connection();
    let given = format!(">{password}");
    let mut set = luagate::redis::cmd("ACL");
    set.arg(&["SETUSER", USER, "on", "resetpass", &given, "~*", "&*", "+@all"]).exec(con).unwrap();
    luagate::redis::cmd("CLIENT").arg(&["KILL", "USER", USER]).exec(con).unwrap();
}

/// Replaces the file at once, as the tools that rotate passwords do.
fn store(shared: &Shared, password: &str) {
    std::fs::write(shared.path("new"), password).unwrap();
    std::fs::rename(shared.path("new"), shared.path("password")).unwrap();
}

/// The same server for the command, which logs in as the user.
fn target(server: &Server) -> Server {
    super::fault::target(server, server.url.replace("//", &format!("//{USER}@")))
}

/// Whether a connection of the user exists.
fn is_connected(server: &Server) -> Option<()> {
    let list: String = luagate::redis::cmd("CLIENT").arg("LIST").query(&mut server.connection()).unwrap();
    list.contains(&format!("user={USER} ")).then_some(())
}

/// Whether a login of the user was refused.
fn is_refused(server: &Server) -> Option<()> {
    let log: Vec<luagate::redis::Value> =
        luagate::redis::cmd("ACL").arg("LOG").query(&mut server.connection()).unwrap();
    format!("{log:?}").contains(USER).then_some(())
}

#[test]
fn every_command_logs_in_with_the_password_of_the_file() {
    let server = own!(Server::private_tcp(&[]));
    rotate(&server, "hunter2");
    let url = server.url.replace("//", &format!("//{USER}@"));
    let shared = Shared::new();
    for (text, fits) in [("hunter2", true), ("hunter2\n", true), ("hunter2\r\n", true), ("hunter23\n", false)]
    {
        store(&shared, text);
        for call in CALLS {
            let mut variable = bare();
            variable.env("LUAGATE_URL", &url).env("LUAGATE_PASSWORD_FILE", shared.path("password"));
            let from_variable = variable.args(words(call)).done();
            let mut option = bare();
            option.args(["--url", &url, "--password-file"]).arg(shared.path("password"));
            let from_option = option.args(words(call)).done();
            for ended in [from_variable, from_option] {
                let is_refused =
                    ended.err().contains("cannot log in") || ended.out().contains("cannot log in");
                let may_be_refused = !fits && !call.starts_with("complete");
                assert_eq!(is_refused, may_be_refused, "{call}: {ended:?}");
                assert!(!shows(&ended), "{call}: {ended:?}");
            }
        }
    }
}

#[test]
fn a_file_that_cannot_be_used_is_reported_at_once_without_its_text() {
    let server = own!(Server::private_tcp(&[]));
    let shared = Shared::new();
    let run = |file: &Path| {
        let ended =
            luagate(&server).arg("--password-file").arg(file).args(words("run -w 10m a -- true")).done();
        assert_eq!(ended.code(), 69, "{ended:?}");
        assert!(!shows(&ended), "{ended:?}");
        ended.err()
    };
    for (text, words) in [("", "no line"), ("\n", "no line"), ("hunter2\nhunter2\n", "several")] {
        store(&shared, text);
        let error = run(&shared.path("password"));
        assert!(error.contains("--password-file: ") && error.contains(words), "{error}");
    }
    assert!(run(&shared.path("nowhere")).contains("cannot read "));
    assert!(run(Path::new("/dev/zero")).contains("a device"));
    store(&shared, &"hunter2".repeat(10_000));
    assert!(run(&shared.path("password")).contains("more than 65536 bytes"));
    store(&shared, "hunter2");
    let url = server.url.replace("//", "//:hunter2@");
    let mut both = bare();
    let both = both.args(["--url", &url, "ls", "--password-file"]).arg(shared.path("password")).done();
    assert_eq!(both.code(), 64, "{both:?}");
    assert!(both.err().contains("--password-file: the URL has a password too") && !shows(&both), "{both:?}");
}

#[test]
fn the_keeper_of_acquire_keeps_its_permit_when_the_password_changes() {
    let server = own!(Server::private_tcp(&[]));
    let (shared, name, target) = (Shared::new(), name(), target(&server));
    rotate(&server, "old");
    store(&shared, "old");
    // The keeper works in another folder.
    let mut command = luagate(&target);
    command.current_dir(shared.path("")).env("LUAGATE_PASSWORD_FILE", "password");
    let acquired = command.args(words("acquire -q --lease 6s")).arg(&name).done();
    assert_eq!(acquired.code(), 0, "{acquired:?}");
    let printed = acquired.out();
    rotate(&server, "new");
    store(&shared, "new");
    eventually("the keeper has connected again", || is_connected(&server));
    let end = || Instant::now() + server.gate().mutex(&name).inspect().unwrap().holders[0].remaining.unwrap();
    let before = end();
    eventually("the lease is renewed", || (end() > before + Duration::from_secs(1)).then_some(()));
    let mut release = luagate(&target);
    release
        .arg("--password-file")
        .arg(shared.path("password"))
        .arg("release")
        .args(printed.split_whitespace());
    assert_eq!(release.done().code(), 0);
    assert!(!is_locked(&server, &name));
    has_ended(&name);
}

#[test]
fn run_waits_while_the_server_refuses_the_password() {
    let server = own!(Server::private_tcp(&[]));
    let (shared, target) = (Shared::new(), target(&server));
    rotate(&server, "new");
    store(&shared, "old");
    let mut run = luagate(&target);
    let run = run
        .arg("--password-file")
        .arg(shared.path("password"))
        .args(words("run -w 10m a -- echo done"))
        .started();
    eventually("it tries the old password", || is_refused(&server));
    store(&shared, "new");
    let ended = run.output();
    assert_eq!((ended.code(), ended.out().trim()), (0, "done"), "{ended:?}");
}

#[test]
fn run_and_its_guard_use_the_password_of_the_moment() {
    let server = own!(Server::private_tcp(&[]));
    let (shared, target) = (Shared::new(), target(&server));
    rotate(&server, "old");
    store(&shared, "old");
    let options = format!("--lease 10m --password-file {}", shared.path("password").display());
    let run = script(&target, &shared, &options, "echo $$ >$0/pid; sleep 600");
    shared.text("pid");
    rotate(&server, "new");
    luagate::redis::cmd("ACL").arg("LOG").arg("RESET").exec(&mut server.connection()).unwrap();
    run.signal("KILL"); // only the guard is left, which connects for the first time
    eventually("the guard tries the old password", || is_refused(&server));
    assert!(mutex(&server).try_lock().is_err());
    store(&shared, "new");
    drop(eventually("the guard has released the permit", || mutex(&server).try_lock().ok()));
}
