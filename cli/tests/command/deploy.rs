//! Promise: the files in `examples/deploy` are valid, and the command lines in them do what their comments
//! say.

use super::tool::{Run, Running, Shared, Text, bare};
use crate::own;
use crate::support::{Server, eventually, root};
use luagate::Gate;
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// The text of an example.
fn example(name: &str) -> String {
    std::fs::read_to_string(root().join("examples/deploy").join(name)).unwrap()
}

/// Starts the command line of an example, with these programs on the PATH.
fn run(server: &Server, programs: &Shared, command: &[String]) -> Running {
    assert_eq!(Path::new(&command[0]).file_name().unwrap(), "luagate", "{command:?}");
    let path = format!("{}:{}", programs.path("").display(), std::env::var("PATH").unwrap());
    bare().args(&command[1..]).env("PATH", path).env("LUAGATE_URL", &server.url).started()
}

fn lines(programs: &Shared) -> Vec<String> {
    let text = std::fs::read_to_string(programs.path("log")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// The command of the only container.
fn command_of_cronjob() -> Vec<String> {
    let manifest: Value = serde_saphyr::from_str(&example("cronjob.yaml")).unwrap();
    assert_eq!((&manifest["apiVersion"], &manifest["kind"]), (&"batch/v1".into(), &"CronJob".into()));
    let pod = &manifest["spec"]["jobTemplate"]["spec"]["template"]["spec"];
    assert_eq!(pod["restartPolicy"], "Never"); // of a job: Never or OnFailure
    let container = &pod["containers"][0];
    assert!(container["name"].is_string() && container["image"].is_string(), "{container}");
    let variable = &container["env"][0];
    assert_eq!(variable["name"], "LUAGATE_URL");
    assert!(variable["valueFrom"]["secretKeyRef"]["key"].is_string(), "{variable}");
    let words = container["command"].as_array().unwrap();
    words
        .iter()
        .map(|word| word.as_str().unwrap_or_else(|| panic!("not a text: {word}")).to_owned())
        .collect()
}

#[test]
fn the_cronjob_runs_its_job_once_in_all_clusters_also_if_one_is_late() {
    let server = own!(Server::private(&[]));
    let programs = Shared::new();
    programs.script("nightly-report", &format!("echo \"report $*\" >>{}", programs.path("log").display()));
    let command = command_of_cronjob();
    let clusters = [(); 3].map(|()| run(&server, &programs, &command));
    for ended in clusters.map(Running::output) {
        assert_eq!(ended.code(), 0, "{ended:?}");
    }
    let late = run(&server, &programs, &command).output();
    assert_eq!(late.code(), 0, "{late:?}");
    assert_eq!(lines(&programs), ["report --all"]);
}

/// The unit with the programs of this test.
fn unit(programs: &Shared) -> String {
    let shop = programs.path("shop").display().to_string();
    example("shop.service")
        .replace("/usr/local/bin/luagate", env!("CARGO_BIN_EXE_luagate"))
        .replace("/usr/local/bin/shop", &shop)
        .replace("/etc/shop.env", &programs.path("shop.env").display().to_string())
}

/// It writes its first and its last line under the permit.
fn shop(programs: &Shared) {
    let log = programs.path("log").display().to_string();
    let text = format!(
        "trap 'echo ends >>{log}; exit 0' TERM\necho \"begins $*\" >>{log}\nwhile :; do sleep 0.1; done"
    );
    programs.script("shop", &text);
    std::fs::write(programs.path("shop.env"), "LUAGATE_URL=redis://server/\n").unwrap();
}

#[test]
fn the_unit_runs_its_service_on_one_machine_and_the_other_takes_over() {
    let server = own!(Server::private(&[]));
    let programs = Shared::new();
    shop(&programs);
    let unit = unit(&programs);
    let start = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).expect("a command");
    let command: Vec<String> = start.replace("%H", "host7").split(' ').map(str::to_owned).collect();
    let first = run(&server, &programs, &command);
    eventually("the service runs", || (lines(&programs) == ["begins --port 8080"]).then_some(()));
    let second = run(&server, &programs, &command);
    let mutex = Gate::open(&server.url).unwrap().mutex("shop");
    let state = eventually("the other machine waits", || {
        mutex.inspect().ok().filter(|state| state.waiter_count == 1)
    });
    assert!(state.holders[0].id.starts_with("host7@"), "{state}");
    first.signal("TERM"); // as systemd does with KillMode=mixed
    let ended = first.output();
    assert_eq!(ended.code(), 0, "{ended:?}"); // the status of the shop
    let taken_over = ["begins --port 8080", "ends", "begins --port 8080"];
    eventually("the other machine takes over", || (lines(&programs) == taken_over).then_some(()));
    second.signal("TERM");
    second.output();
}

/// `systemd-analyze` names the file for each line that it does not understand.
#[test]
fn systemd_accepts_the_unit() {
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        return crate::support::skip_since("needs systemd-analyze");
    }
    let programs = Shared::new();
    shop(&programs);
    std::fs::write(programs.path("shop.service"), unit(&programs)).unwrap();
    let verified = Command::new("systemd-analyze")
        .args(["verify", "--man=no"])
        .arg(programs.path("shop.service"))
        .done();
    assert_eq!(verified.code(), 0, "{verified:?}");
    assert!(!verified.err().contains("shop.service"), "{verified:?}");
}
