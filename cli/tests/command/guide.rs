//! The examples of the documentation.

use super::tool::{Run, Text, bare};
use crate::support::root;
use std::path::Path;
use std::process::{Command, Output};

/// The lines of the shell examples that call `luagate`, and the complete calls in the rows of tables.
fn examples(text: &str) -> Vec<&str> {
    let blocks = text.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    let cells =
        text.lines().filter(|line| line.starts_with("| ")).flat_map(|row| row.split('`').skip(1).step_by(2));
    let cells = cells.filter(|call| call.contains(" -- ") && !call.contains(['…', '$']));
    blocks.flat_map(str::lines).chain(cells).filter(|line| line.starts_with("luagate ")).collect()
}

/// Runs an example. Without a server, one that is right ends with the status for that, and one with a wrong
/// argument with another.
fn without_server(example: &str) -> Output {
    let folder = Path::new(env!("CARGO_BIN_EXE_luagate")).parent().unwrap();
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    let mut shell = Command::new("sh");
    shell.args(["-c", example]).env("PATH", path).env("USER", "anna").env_remove("LUAGATE_PREFIX");
    shell.env("LUAGATE_URL", "redis://127.0.0.1:1/").done()
}

#[test]
fn the_arguments_of_every_example_are_valid() {
    let mut count = 0;
    let pages = ["command_line", "lock_commands", "observability"].map(|page| format!("src/guide/{page}.md"));
    for file in ["README.md", "cli/README.md"].map(str::to_owned).into_iter().chain(pages) {
        let text = std::fs::read_to_string(root().join(&file)).unwrap();
        for line in examples(&text) {
            let ended = without_server(line);
            // `top` needs a terminal: it says so before it connects.
            let expected = if line == "luagate top" { 64 } else { 69 };
            assert_eq!(ended.code(), expected, "{file}: {line}: {ended:?}");
            count += 1;
        }
    }
    assert!(count >= 15, "only {count} examples");
}

#[test]
fn the_example_of_each_help_is_valid() {
    for command in [
        "run", "try", "acquire", "release", "refresh", "ls", "inspect", "revoke", "resize", "latch", "doctor",
    ] {
        let help = bare().args([command, "--help"]).done().out();
        let example = help.split("Example: ").nth(1).unwrap().lines().next().unwrap();
        let ended = without_server(&example.replace(" --url redis://server/", ""));
        assert_eq!(ended.code(), 69, "{example}: {ended:?}");
    }
}
