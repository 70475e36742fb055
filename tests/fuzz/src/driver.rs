//! Builds the targets, and runs one after the other.

use luagate_fuzz::{TARGETS, Target, target};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const USAGE: &str = "accepted: SECONDS [TARGET]..., or `again TARGET FILE` for an input that has failed";

/// Counters for each edge of the code, and for comparisons, as libFuzzer reads them.
const FLAGS: &str = "--cfg fuzzing -Ccodegen-units=1 -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares";

/// An input that takes more memory or time than this is a failure. No valid input is longer than `-max_len`.
const LIMITS: [&str; 3] = ["-rss_limit_mb=512", "-timeout=5", "-max_len=4096"];

pub fn carry_out(arguments: &[String]) -> Result<(), String> {
    match arguments {
        [again, name, file] if again == "again" => {
            let input = fs::read(file).map_err(|error| format!("{file}: {error}"))?;
            (named(name)?.run)(&input);
            println!("fuzz: {name}: the promise holds for this input");
            Ok(())
        }
        [seconds, names @ ..] => {
            let seconds = seconds.parse().map_err(|_| USAGE)?;
            let targets: Vec<&Target> = match names {
                [] => TARGETS.iter().collect(),
                names => names.iter().map(|name| named(name)).collect::<Result<_, _>>()?,
            };
            run_all(&targets, seconds)
        }
        [] => Err(USAGE.to_owned()),
    }
}

fn named(name: &str) -> Result<&'static Target, String> {
    let names: Vec<_> = TARGETS.iter().map(|target| target.name).collect();
    target(name).ok_or_else(|| format!("no target {name:?}. Accepted: {}", names.join(", ")))
}

/// Runs each target for this many seconds. A failure of one does not stop the others.
fn run_all(targets: &[&Target], seconds: u64) -> Result<(), String> {
    let folder = build_folder().join("fuzz");
    let program = build(&folder)?;
    let mut failed = Vec::new();
    for (done, target) in targets.iter().enumerate() {
        let left = Duration::from_secs(seconds * (targets.len() - done) as u64);
        println!("fuzz: {}: {done} of {} targets done, {left:?} left", target.name, targets.len());
        match run(&program, &folder, target, seconds) {
            Ok(inputs) => println!("fuzz: {}: {inputs} inputs", target.name),
            Err(message) => {
                println!("fuzz: {}: FAILED\n{message}", target.name);
                failed.push(target.name);
            }
        }
    }
    match failed[..] {
        [] => Ok(()),
        _ => Err(format!("failed: {}", failed.join(", "))),
    }
}

/// The folder of the build that this program is from.
fn build_folder() -> PathBuf {
    let own = std::env::current_exe().unwrap_or_default();
    own.ancestors().nth(2).map_or_else(|| PathBuf::from("target"), Path::to_path_buf)
}

/// Compiles this program with the counters. Returns its path.
fn build(folder: &Path) -> Result<PathBuf, String> {
    let version = Command::new("rustc").arg("-vV").output().map_err(|error| format!("rustc: {error}"))?;
    let version = String::from_utf8_lossy(&version.stdout).into_owned();
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).ok_or("rustc names no host")?;
    let begun = Instant::now();
    // With a target, the flags are not for the build scripts.
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--quiet", "-p", "luagate-fuzz", "--profile", "proof", "--target", host]);
    cargo.arg("--target-dir").arg(folder).env("RUSTFLAGS", FLAGS).current_dir(env!("CARGO_MANIFEST_DIR"));
    let built = cargo.status().map_err(|error| format!("cargo: {error}"))?;
    println!("fuzz: built in {:.0?}", begun.elapsed());
    if !built.success() {
        return Err("the build failed. It needs a compiler of C++ for libFuzzer".to_owned());
    }
    Ok(folder.join(host).join("proof/luagate-fuzz"))
}

/// Returns the number of inputs. An error is the end of the log, with the command that shows the failure
/// again.
fn run(program: &Path, folder: &Path, target: &Target, seconds: u64) -> Result<String, String> {
    let (seeds, corpus) = (folder.join("seeds").join(target.name), folder.join("corpus").join(target.name));
    let log = folder.join(format!("{}.log", target.name));
    let io = |error: std::io::Error| error.to_string();
    for folder in [&seeds, &corpus] {
        fs::create_dir_all(folder).map_err(io)?;
    }
    for (number, seed) in (target.seeds)().iter().enumerate() {
        fs::write(seeds.join(number.to_string()), seed).map_err(io)?;
    }
    let output = File::create(&log).map_err(io)?;
    let mut fuzzer = Command::new(program);
    fuzzer.args(LIMITS).arg(format!("-max_total_time={seconds}")).arg("-print_final_stats=1");
    fuzzer.arg(format!("-artifact_prefix={}/{}-", folder.display(), target.name)).arg(&corpus).arg(&seeds);
    fuzzer.env("LUAGATE_FUZZ_TARGET", target.name).stdin(Stdio::null()).stdout(Stdio::null()).stderr(output);
    let ended = fuzzer.status().map_err(io)?;
    let log = String::from_utf8_lossy(&fs::read(log).map_err(io)?).into_owned();
    if ended.success() {
        let inputs = log.lines().find_map(|line| line.strip_prefix("stat::number_of_executed_units:"));
        return Ok(inputs.map_or_else(|| "no".to_owned(), |inputs| inputs.trim().to_owned()));
    }
    let lines: Vec<&str> =
        log.lines().filter(|line| line.contains("panicked") || !line.starts_with(['#', ' '])).collect();
    let input = log.lines().find_map(|line| line.split_once("Test unit written to ").map(|(_, file)| file));
    let again = input.map(|file| format!("cargo run -p luagate-fuzz -- again {} {file}", target.name));
    Err(format!("{}\n{}", lines[lines.len().saturating_sub(25)..].join("\n"), again.unwrap_or_default()))
}
