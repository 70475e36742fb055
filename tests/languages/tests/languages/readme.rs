//! The README of each package in `clients/`: a newcomer follows its section "First program" in an empty
//! folder.

use super::language::ROOT;
use crate::server;
use crate::support::Server;
use libtest_mimic::Failed;
use luagate::{Gate, Semaphore};
use std::path::Path;
use std::process::{Command, Output};

/// The packages in `clients/`.
pub const PACKAGES: [&str; 4] = ["python", "javascript", "go", "java"];

/// A fenced block of the section: a file to write, or commands to run.
enum Block {
    File { name: String, text: String },
    Commands(String),
}

/// The blocks of the section. The line directly before a file contains only its name, between backticks, and
/// a colon.
fn first_program(package: &str) -> Result<Vec<Block>, Failed> {
    let readme = std::fs::read_to_string(format!("{ROOT}/clients/{package}/README.md"))?;
    let (_, section) = readme.split_once("\n## First program\n").ok_or("no section First program")?;
    let section = section.split("\n## ").next().unwrap_or(section);
    let (mut blocks, mut before) = (Vec::new(), "");
    let mut lines = section.lines();
    while let Some(line) = lines.next() {
        let Some(kind) = line.strip_prefix("```") else {
            before = line;
            continue;
        };
        let text = lines
            .by_ref()
            .take_while(|line| *line != "```")
            .fold(String::new(), |text, line| text + line + "\n");
        let file = before.strip_prefix('`').and_then(|line| line.strip_suffix("`:"));
        blocks.push(match (file, kind) {
            (Some(name), _) => Block::File { name: name.to_owned(), text },
            (None, "sh") => Block::Commands(text),
            (None, other) => return Err(format!("a block of {other} without the name of its file").into()),
        });
    }
    Ok(blocks)
}

/// A copy of the package, without what was built in its folder.
fn copy(package: &str, to: &Path) -> Result<(), Failed> {
    let folder = format!("clients/{package}");
    let list = ["ls-files", "--cached", "--others", "--exclude-standard", &folder];
    let output = Command::new("git").args(list).current_dir(ROOT).output()?;
    for file in String::from_utf8(output.stdout)?.lines() {
        let copy = to.join("luagate").join(file);
        std::fs::create_dir_all(copy.parent().ok_or("a folder")?)?;
        std::fs::copy(format!("{ROOT}/{file}"), copy)?;
    }
    Ok(())
}

/// Runs commands as a newcomer types them.
fn run(commands: &str, folder: &Path, server: &Server) -> std::io::Result<Output> {
    let mut shell = Command::new("sh");
    shell
        .args(["-euc", commands])
        .current_dir(folder)
        .env("REDIS_URL", &server.url)
        .env("HOME", folder.join("home"));
    shell.envs(caches()).output()
}

/// Where the tools keep downloaded packages. `mvn install` writes to the repository that `java/prepare` uses,
/// not to the user's. Maven compiles little, so a JVM that does not optimize needs less time.
fn caches() -> [(&'static str, String); 5] {
    let home = std::env::var("HOME").unwrap_or_default();
    [
        ("PIP_CACHE_DIR", format!("{home}/.cache/pip")),
        ("npm_config_cache", format!("{home}/.npm")),
        ("GOPATH", std::env::var("GOPATH").unwrap_or_else(|_| format!("{home}/go"))),
        ("GOCACHE", std::env::var("GOCACHE").unwrap_or_else(|_| format!("{home}/.cache/go-build"))),
        (
            "MAVEN_OPTS",
            format!(
                "-XX:TieredStopAtLevel=1 -Dmaven.repo.local={ROOT}/tests/languages/java/target/repository"
            ),
        ),
    ]
}

fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

/// The semaphore of the first program.
fn market(server: &Server) -> Result<Semaphore, luagate::Error> {
    Ok(Gate::open(&server.url)?.semaphore("market:account:17", 5))
}

/// The package installs in an empty folder, and its first program acquires and releases a permit. If no
/// permit is free, the program fails within its timeout, names the semaphore and leaves the line.
pub fn first_program_works_in_an_empty_folder(package: &str) -> Result<(), Failed> {
    let server = server();
    let folder = tempfile::Builder::new().prefix("shop").tempdir()?; // npm refuses a name that begins with a dot
    copy(package, folder.path())?;
    let (mut program, mut output) = (String::new(), None);
    for block in first_program(package)? {
        match block {
            Block::File { name, text } => {
                let file = folder.path().join(name);
                std::fs::create_dir_all(file.parent().ok_or("a folder")?)?;
                std::fs::write(file, text)?;
            }
            Block::Commands(commands) => {
                let ran = run(&commands, folder.path(), &server)?;
                let (stdout, stderr) = texts(&ran);
                assert!(ran.status.success(), "{commands}{stdout}{stderr}");
                (program, output) = (commands, Some(stdout));
            }
        }
    }
    // Maven prints the code that resets the colours.
    let output = output.ok_or("no commands")?.replace("\u{1b}[0m\n", "").replace("\u{1b}[0m", "");
    assert!(output.starts_with("trading as ") && output.lines().count() == 1, "{output}");
    let market = market(&server)?;
    let state = market.inspect()?;
    assert_eq!((state.limit, state.in_use), (Some(5), 0));

    let _held = market.try_acquire_many(5)?;
    let ran = run(&program, folder.path(), &server)?;
    let (stdout, stderr) = texts(&ran);
    let printed = stdout + &stderr; // Maven prints errors to the standard output
    assert!(!ran.status.success() && !printed.contains("trading as"), "{printed}");
    assert!(printed.contains("market:account:17"), "the error does not name the semaphore: {printed}");
    assert_eq!(market.inspect()?.waiter_count, 0);
    Ok(())
}
