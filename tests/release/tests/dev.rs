//! Promise: `./dev test` runs the tests in containers wherever a container engine answers, and says at its
//! end what it did not run. It never reports a test as passed that could not run.
//!
//! Each tool that `./dev` calls is replaced by a script.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

/// Notes its arguments and its server. Its tests pass, and one of them could not run.
const CARGO: &str = r#"
printf '%s | %s | %s\n' "$*" "$REDIS_URL" "${LUAGATE_SERVER-unset}" >>"$FAKE_FOLDER/calls"
case $* in
  "${FAKE_FAILURE:-none}"*) exit 1 ;;
  deny*) exit 1 ;;
  test-library*)
    echo 'skipped: a_test needs a server of its own' >&2
    echo 'test result: ok. 3 passed; 0 failed; 0 ignored' ;;
esac
"#;

/// `FAKE_ENGINE`: whether it answers, and whether a container of it starts.
const DOCKER: &str = r#"
case $1:$FAKE_ENGINE in
  info:absent | run:broken) exit 1 ;;
  logs:*) echo 'Ready to accept connections' ;;
  port:*) echo 127.0.0.1:7777 ;;
esac
"#;

const CONTAINERS: &str = "the tests in containers";

struct Dev {
    folder: TempDir,
    command: Command,
}

fn tool(folder: &Path, name: &str, script: &str) {
    let file = folder.join(name);
    fs::write(&file, format!("#!/bin/sh\n{script}")).unwrap();
    fs::set_permissions(file, fs::Permissions::from_mode(0o755)).unwrap();
}

impl Dev {
    fn new(arguments: &[&str], engine: &str) -> Dev {
        let folder = tempfile::tempdir().unwrap();
        tool(folder.path(), "cargo", CARGO);
        tool(folder.path(), "docker", DOCKER);
        for works in ["luacheck", "shellcheck", "valgrind"] {
            tool(folder.path(), works, "");
        }
        for fails in ["podman", "go", "python3", "apt-get", "sudo", "dnf", "apk", "brew"] {
            tool(folder.path(), fails, "exit 1");
        }
        let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
        let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut command = Command::new(root.join("dev"));
        command
            .args(arguments)
            .env("PATH", path)
            .env("FAKE_FOLDER", folder.path())
            .env("FAKE_ENGINE", engine);
        command.env("REDIS_URL", "redis://me@first"); // with a user, so that nobody asks it for its version
        for variable in ["LUAGATE_IMAGE", "LUAGATE_SERVER", "CARGO", "CARGO_TARGET_DIR"] {
            command.env_remove(variable);
        }
        Dev { folder, command }
    }

    fn run(&mut self) -> (Output, String, Vec<String>) {
        let output = self.command.output().unwrap();
        let text = [&output.stdout, &output.stderr]
            .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
            .concat();
        let calls = fs::read_to_string(self.folder.path().join("calls")).unwrap_or_default();
        (output, text, calls.lines().map(str::to_owned).collect())
    }
}

/// The part of a log after the cost of all steps.
#[track_caller]
fn end_of(text: &str) -> &str {
    text.split_once("processor seconds\n").unwrap_or_else(|| panic!("no end in\n{text}")).1
}

/// The calls of tests on the server in the container, which is the only server of these tests.
fn in_container(calls: &[String]) -> Vec<&str> {
    let calls = calls.iter().filter_map(|call| call.strip_suffix(" | redis://127.0.0.1:7777 | "));
    calls.filter(|call| call.contains("test-library")).collect()
}

#[test]
fn without_an_engine_the_end_of_the_log_says_that_the_tests_in_containers_did_not_run() {
    let (output, text, calls) = Dev::new(&["test"], "absent").run();
    assert!(output.status.success(), "{text}");
    let end = end_of(&text);
    assert!(
        end.contains(&format!("dev: not run: {CONTAINERS}: neither docker nor podman answers\n")),
        "{end}"
    );
    assert!(in_container(&calls).is_empty(), "{calls:?}");
}

#[test]
fn with_an_engine_the_tests_run_on_a_container_and_those_that_could_not_are_not_counted_as_passed() {
    let (output, text, calls) = Dev::new(&["test"], "works").run();
    assert!(output.status.success(), "{text}");
    let calls = in_container(&calls);
    let [docker, tests] = calls[..] else { panic!("{calls:?}\n{text}") };
    for folder in ["command", "connections", "permits", "waiting"] {
        assert!(tests.contains(&format!(" --test {folder}")), "{tests}");
    }
    assert_eq!(docker, "test-library --test docker -- --ignored");
    let counted = "redis:7.2-alpine in a container: 2 tests passed, 1 could not run there\n";
    assert!(text.contains(counted), "{text}");
    assert!(!end_of(&text).contains(CONTAINERS), "{text}");
}

#[test]
fn an_engine_that_starts_no_container_is_a_failure() {
    for arguments in [&["test"][..], &["test", "docker"]] {
        let (output, text, calls) = Dev::new(arguments, "broken").run();
        assert!(!output.status.success(), "{text}");
        assert!(end_of(&text).contains("dev: failed:\na container of redis:7.2-alpine"), "{text}");
        assert!(in_container(&calls).is_empty(), "{calls:?}");
    }
}

#[test]
fn the_tests_in_containers_alone_fail_without_an_engine() {
    let (output, text, calls) = Dev::new(&["test", "docker"], "absent").run();
    assert!(!output.status.success() && calls.is_empty(), "{text}");
    assert!(text.contains("dev: no container engine"), "{text}");
}

#[test]
fn tests_and_checks_that_could_not_run_are_listed_at_the_end() {
    let (_, text, _) = Dev::new(&["test"], "absent").run();
    let end = end_of(&text);
    for line in ["tests: needs a server of its own (1)", "the check of dependencies: cargo-deny is missing"] {
        assert!(end.contains(&format!("dev: not run: {line}")), "{end}");
    }
}

#[test]
fn a_stale_lock_file_or_another_format_of_a_crate_outside_the_workspace_is_a_failure() {
    for check in [
        "update --quiet --locked --workspace --manifest-path Cargo.toml",
        "update --quiet --locked --workspace --manifest-path benches/peers/luagate/Cargo.toml",
        "fmt --check --manifest-path benches/peers/luagate/Cargo.toml",
    ] {
        let mut dev = Dev::new(&["test"], "absent");
        dev.command.env("FAKE_FAILURE", check);
        let (output, text, _) = dev.run();
        assert!(!output.status.success(), "{text}");
        assert!(end_of(&text).contains(&format!("dev: failed:\ncargo {check}")), "{text}");
    }
}
