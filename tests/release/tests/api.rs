//! Promise: the public API changes only when a person accepts the change, and it names no type of another
//! crate that `RELEASING.md` does not list.
//!
//! `LUAGATE_RECORD=1 cargo test -p luagate-release --test api` records the present API in `public-api.txt`.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

const RECORD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/public-api.txt");

/// The modules of `luagate-core` that luagate exports. The others are internal.
const EXPORTED: [&str; 7] = ["autocomplete", "call", "invalid", "keys", "kind", "latch", "semaphore"];

/// The public API with all features, one item on each line: that of luagate, and the types of the core that
/// it exports.
fn public_api() -> Option<String> {
    let own = api_of("luagate")?;
    let pages = "pub mod luagate::guide::"; // the guide may gain, lose and rename pages
    let own = own.lines().filter(|line| !line.starts_with(pages));
    let core = api_of("luagate-core")?;
    let is_exported = |line: &&str| {
        let module = line.split("luagate_core::").nth(1).and_then(|path| path.split("::").next());
        module.is_some_and(|module| EXPORTED.contains(&module))
    };
    let all = own.chain(core.lines().filter(is_exported));
    Some(all.map(|line| format!("{line}\n")).collect())
}

/// `None`: this Rust writes a format that `public-api` cannot read.
fn api_of(package: &str) -> Option<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let rustdoc =
        ["rustdoc", "--quiet", "-p", package, "--lib", "--all-features", "--message-format=json", "--"];
    let mut command = Command::new(env!("CARGO"));
    command.args(rustdoc).args(["-Z", "unstable-options", "--output-format", "json", "--cap-lints", "allow"]);
    // Only the JSON of rustdoc is unstable; with this, the stable toolchain writes it too. If cargo had the
    // variable itself, it would build many dependencies again, and once more without it.
    let folder = tempfile::tempdir().unwrap();
    let unstable = folder.path().join("rustdoc");
    fs::write(&unstable, "#!/bin/sh\nRUSTC_BOOTSTRAP=1 exec rustdoc \"$@\"\n").unwrap();
    fs::set_permissions(&unstable, fs::Permissions::from_mode(0o755)).unwrap();
    command.env("RUSTDOC", &unstable).env_remove("RUSTDOCFLAGS").current_dir(&root);
    let output = command.output().expect("cargo starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), Into::into);
    let file = format!("doc/{}.json", package.replace('-', "_"));
    let api = public_api::Builder::from_rustdoc_json(target.join(file))
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .omit_auto_derived_impls(true)
        .build();
    match api {
        Ok(api) => Some(api.to_string()),
        Err(error) => {
            // Not `eprintln`: the terminal shows this although the test harness captures output.
            let why = "skipped: api needs a Rust whose rustdoc writes the format that public-api reads";
            let _ = writeln!(std::io::stderr(), "{why}: {error}");
            None
        }
    }
}

/// What differs, as a diff shows it.
fn difference(recorded: &str, present: &str) -> Vec<String> {
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<BTreeSet<_>>();
    let (recorded, present) = (lines(recorded), lines(present));
    let removed = recorded.difference(&present).map(|line| format!("- {line}"));
    let added = present.difference(&recorded).map(|line| format!("+ {line}"));
    removed.chain(added).collect()
}

/// Paths of types that neither this crate nor the standard library defines.
fn foreign_types(api: &str) -> BTreeSet<String> {
    let is_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let words = api.split(|c| !is_path(c)).map(|word| word.trim_matches(':'));
    let paths = words.filter(|word| word.contains("::"));
    let own = ["luagate", "luagate_core", "core", "alloc", "std"];
    paths
        .filter(|path| path.split("::").next().is_some_and(|first| !own.contains(&first)))
        .map(str::to_owned)
        .collect()
}

#[test]
fn public_api_is_the_recorded_one() {
    let Some(api) = public_api() else { return };
    if std::env::var_os("LUAGATE_RECORD").is_some() {
        fs::write(RECORD, &api).unwrap();
        return;
    }
    let recorded = fs::read_to_string(RECORD).unwrap();
    let changes = difference(&recorded, &api);
    let accept = "LUAGATE_RECORD=1 cargo test -p luagate-release --test api";
    assert!(changes.is_empty(), "the public API changed:\n{}\nto accept it: {accept}", changes.join("\n"));
    assert_eq!(recorded, api, "to accept it: {accept}");
}

#[test]
fn types_of_other_crates_in_the_public_api_are_listed() {
    let Ok(api) = fs::read_to_string(RECORD) else { panic!("{RECORD} is missing") };
    let releasing = include_str!("../../../RELEASING.md");
    let section =
        releasing.split("## Types of other crates").nth(1).and_then(|text| text.split("\n## ").next());
    let listed =
        section.expect("RELEASING.md has the section").lines().filter_map(|line| line.strip_prefix("| `"));
    let listed: BTreeSet<_> = listed.filter_map(|line| line.split('`').next()).map(str::to_owned).collect();
    assert_eq!(listed, foreign_types(&api));
}
