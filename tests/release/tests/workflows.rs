//! Promise: a workflow does what `./dev` does on any machine, with no more rights than it needs, and with
//! actions that cannot change. `./dev test` also reads the workflows with actionlint.

use std::collections::BTreeMap;
use std::path::Path;

fn workflows() -> BTreeMap<String, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.github/workflows");
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let entries = entries.map(|entry| entry.unwrap());
    let texts: BTreeMap<_, _> = entries
        .map(|entry| {
            (entry.file_name().to_string_lossy().into_owned(), std::fs::read_to_string(entry.path()).unwrap())
        })
        .collect();
    assert!(texts.len() >= 2, "{:?}", texts.keys());
    texts
}

/// The values of a key in the steps.
fn values<'a>(text: &'a str, key: &'a str) -> impl Iterator<Item = &'a str> {
    text.lines().filter_map(move |line| line.trim_start().trim_start_matches("- ").strip_prefix(key))
}

#[test]
fn every_step_calls_dev() {
    for (name, text) in workflows() {
        assert!(values(&text, "run: ").count() > 0, "{name}");
        for command in values(&text, "run: ") {
            assert!(command.contains("./dev ") && !command.contains("${{"), "{name}: {command}");
        }
    }
}

#[test]
fn the_tests_in_containers_run_with_an_image_of_redis_and_one_of_valkey() {
    let workflows = workflows();
    let docker = workflows["test.yml"]
        .split("\n\n")
        .find(|job| values(job, "run: ").any(|run| run == "./dev test docker"));
    let images = values(docker.expect("a job"), "image: ").next().expect("its images");
    assert!(images.contains("'redis:") && images.contains("'valkey/valkey:"), "{images}");
}

#[test]
fn every_action_is_pinned_and_names_its_version() {
    for (name, text) in workflows() {
        for action in values(&text, "uses: ") {
            let (_, pin) = action.split_once('@').unwrap_or_default();
            let (commit, version) = pin.split_once(" # v").unwrap_or_default();
            let is_commit = commit.len() == 40 && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
            assert!(is_commit && version.split('.').count() == 3, "{name}: {action}");
        }
    }
}

#[test]
fn a_workflow_may_only_read() {
    for (name, text) in workflows() {
        assert!(text.contains("\npermissions:\n  contents: read\n"), "{name}");
        let more: Vec<_> = text.lines().filter(|line| line.contains(": write")).collect();
        let allowed = if name == "release.yml" { 1 } else { 0 }; // the job that publishes
        assert_eq!(more.len(), allowed, "{name}: {more:?}");
    }
}
