//! Promise: a program builds with the published package alone, also with the oldest Rust and the oldest
//! direct dependencies that `Cargo.toml` allows. If the program has no cryptography provider for rustls, TLS
//! is an error that names what is missing. The package contains code, scripts, examples, licences and the
//! README, and nothing else.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or(root().join("target"), Into::into)
}

/// What a command prints. It has to succeed.
fn output_of(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}:\n{stdout}{stderr}");
    stdout.into_owned()
}

fn files() -> Vec<String> {
    let list = ["package", "--list", "--quiet", "--allow-dirty", "--package", "luagate"];
    output_of(Command::new(env!("CARGO")).args(list).current_dir(root())).lines().map(str::to_owned).collect()
}

#[test]
fn package_contains_code_scripts_examples_licences_and_readme() {
    let files = files();
    let made_by_cargo = [".cargo_vcs_info.json", "Cargo.lock", "Cargo.toml", "Cargo.toml.orig"];
    let texts = ["README.md", "CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT"];
    for file in
        texts.iter().chain(&["lua/manifest.json", "lua/README.md", "src/lib.rs", "examples/nightly_job.rs"])
    {
        assert!(files.iter().any(|packed| packed == file), "{file} is missing");
    }
    let folders = ["src/", "lua/", "examples/", "docs/"];
    let is_expected = |file: &&String| {
        let name = file.as_str();
        folders.iter().any(|folder| name.starts_with(folder))
            || texts.contains(&name)
            || made_by_cargo.contains(&name)
    };
    let others: Vec<_> = files.iter().filter(|file| !is_expected(file)).collect();
    assert!(others.is_empty(), "not expected in the package: {others:?}");
}

/// The README names the packages that the library always needs, and no others.
#[test]
fn the_readme_names_the_dependencies() {
    let manifest: toml::Table = fs::read_to_string(root().join("Cargo.toml")).unwrap().parse().unwrap();
    let always = |table: &toml::Value| -> Vec<String> {
        let needed = table.as_table().expect("a table").iter();
        let needed = needed.filter(|(_, entry)| entry.get("optional").is_none());
        needed.map(|(name, _)| format!("`{name}`")).collect()
    };
    let mut named = always(&manifest["dependencies"]);
    // The core is a part of the library.
    let core: toml::Table =
        fs::read_to_string(root().join("crates/core/Cargo.toml")).unwrap().parse().unwrap();
    named.extend(always(&core["dependencies"]));
    named.retain(|name| name != "`luagate-core`");
    named.extend(always(&manifest["target"]["cfg(target_os = \"linux\")"]["dependencies"]));
    named.sort();
    named.dedup();
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let line = readme.lines().find_map(|line| line.strip_prefix("- **Dependencies**: ")).expect("a line");
    let mut words: Vec<_> = line.split([' ', ',', ';', '.']).filter(|word| word.starts_with('`')).collect();
    words.sort_unstable();
    assert_eq!(words, named, "README.md: {line}");
}

/// A newcomer reads the whole README before deciding.
#[test]
fn the_readme_is_short() {
    let lines = fs::read_to_string(root().join("README.md")).unwrap().lines().count();
    assert!(
        lines <= 150,
        "README.md has {lines} lines, at most 150 are allowed: move the rest to a page of the guide"
    );
}

/// The targets of the links and pictures of a Markdown text.
fn links(text: &str) -> Vec<String> {
    let ends = text.split("](").skip(1);
    ends.filter_map(|rest| rest.split(')').next()).map(str::to_owned).collect()
}

#[test]
fn pictures_and_links_of_the_readme_work_in_the_package() {
    let files = files();
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let links = links(&readme);
    assert!(links.len() > 10, "only {} links", links.len());
    for link in links.iter().filter(|link| !link.starts_with("https://") && !link.starts_with('#')) {
        let path = link.split('#').next().unwrap_or_default().trim_end_matches('/');
        let is_packed = files.iter().any(|file| file == path || file.starts_with(&format!("{path}/")));
        assert!(is_packed, "the README links to {link}, which is not in the package");
    }
}

/// The manifest with the oldest version of each dependency, and without what only tests need.
fn with_oldest_dependencies(manifest: &str) -> String {
    let mut manifest: toml::Table = manifest.parse().unwrap();
    manifest.remove("dev-dependencies");
    set_oldest(&mut manifest);
    let systems = manifest.get_mut("target").and_then(toml::Value::as_table_mut).expect("the clock of Linux");
    for (_, system) in systems.iter_mut() {
        set_oldest(system.as_table_mut().expect("a table"));
    }
    toml::to_string(&manifest).unwrap()
}

/// Sets the oldest version of each dependency of this table.
fn set_oldest(table: &mut toml::Table) {
    let dependencies =
        table.get_mut("dependencies").and_then(toml::Value::as_table_mut).expect("dependencies");
    for (name, dependency) in dependencies.iter_mut() {
        let version = dependency.get_mut("version").unwrap_or_else(|| panic!("{name} has a version"));
        let oldest = version.as_str().expect("a text");
        if oldest.starts_with('=') {
            continue; // exactly this one
        }
        let missing = ".0".repeat(2 - oldest.matches('.').count());
        *version = format!("={oldest}{missing}").into();
    }
}

/// Whether this toolchain is installed, or can be.
fn has_toolchain(version: &str) -> bool {
    let rustup = |words: &[&str]| {
        Command::new("rustup").args(words).output().is_ok_and(|output| output.status.success())
    };
    rustup(&["run", version, "rustc", "--version"])
        || rustup(&["toolchain", "install", version, "--profile", "minimal", "--no-self-update"])
}

/// Has all features and nothing else, so no cryptography provider: `redis` alone would panic.
const PROGRAM: &str = r#"
use luagate::errors::{CallError, FailureKind};

fn main() {
    match luagate::Gate::open("rediss://127.0.0.1:1/") {
        Err(CallError::Failed(failure)) if failure.kind() == FailureKind::Tls => println!("{failure}"),
        other => panic!("{other:?}"),
    }
}
"#;

/// Writes the manifest and the code of a program that uses the package with these features.
fn write_program(folder: &Path, package: &Path, features: &[&String]) {
    let manifest = format!(
        "[package]\nname = \"program\"\nedition = \"2024\"\n\n[dependencies.luagate]\npath = {package:?}\n\
         features = {features:?}\n"
    );
    fs::create_dir_all(folder.join("src")).unwrap();
    fs::write(folder.join("Cargo.toml"), manifest).unwrap();
    fs::write(folder.join("src/main.rs"), PROGRAM).unwrap();
}

#[test]
fn a_program_builds_with_the_package_alone_the_oldest_rust_and_the_oldest_dependencies() {
    let folder = tempfile::tempdir().unwrap();
    let package = [
        "package",
        "--quiet",
        "--no-verify",
        "--allow-dirty",
        "-p",
        "luagate-core",
        "-p",
        "luagate-memory",
        "-p",
        "luagate",
    ];
    let made = folder.path().join("made");
    output_of(Command::new(env!("CARGO")).args(package).arg("--target-dir").arg(&made).current_dir(root()));
    for packed in fs::read_dir(made.join("package")).unwrap().map(|entry| entry.unwrap().path()) {
        if packed.extension().is_some_and(|extension| extension == "crate") {
            output_of(Command::new("tar").arg("-xzf").arg(&packed).arg("-C").arg(folder.path()));
        }
    }
    let unpacked = |name: &str| {
        let mut entries = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
        let is_it = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().starts_with(name);
        entries.find(is_it).unwrap_or_else(|| panic!("{name} was not unpacked"))
    };
    let (luagate, core, memory) =
        (unpacked("luagate-0"), unpacked("luagate-core-0"), unpacked("luagate-memory-0"));
    let manifest = fs::read_to_string(luagate.join("Cargo.toml")).unwrap();
    fs::write(luagate.join("Cargo.toml"), with_oldest_dependencies(&manifest)).unwrap();
    // They are in no registry before the first release.
    let paths = format!("luagate-core = {{ path = {core:?} }}\nluagate-memory = {{ path = {memory:?} }}\n");
    let patch = format!("[patch.crates-io]\n{paths}");
    fs::write(folder.path().join("patch.toml"), patch).unwrap();

    let manifest: toml::Table = manifest.parse().unwrap();
    let features: Vec<_> = manifest["features"].as_table().expect("a table").keys().collect();
    let program = folder.path().join("program");
    write_program(&program, &luagate, &features);
    let oldest = format!("{}.0", manifest["package"]["rust-version"].as_str().expect("rust-version"));
    let cargo = || {
        let mut cargo = Command::new("cargo");
        if has_toolchain(&oldest) {
            cargo
                .arg(format!("+{oldest}"))
                .env_remove("RUSTC")
                .env_remove("RUSTDOC")
                .env_remove("RUSTUP_TOOLCHAIN");
        } else {
            println!("Rust {oldest} cannot be had here, so the package is built with the present one");
        }
        cargo.args(["run", "--quiet", "--config", "../patch.toml"]).current_dir(&program);
        cargo.env("CARGO_TARGET_DIR", target().join("oldest")).env("CARGO_PROFILE_DEV_DEBUG", "false");
        cargo
    };
    let printed = output_of(&mut cargo());
    assert!(
        printed.contains("Add `rustls` to your program with its feature `ring` or `aws-lc-rs`"),
        "{printed}"
    );
}
