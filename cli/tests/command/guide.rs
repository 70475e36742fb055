//! The examples of the documentation.

use super::tool::{Run, Text, bare};
use crate::support::root;
use std::path::Path;
use std::process::{Command, Output};

/// The lines of the shell examples that call `luagate`.
fn examples(text: &str) -> Vec<&str> {
    let blocks = text.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    blocks.flat_map(str::lines).filter(|line| line.starts_with("luagate ")).collect()
}

/// Runs an example. Without a server, one that is right ends with the status for that, and one with a wrong argument with
/// another.
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
    for file in ["README.md", "cli/README.md", "src/guide/command_line.md", "src/guide/observability.md"] {
        let text = std::fs::read_to_string(root().join(file)).unwrap();
        for line in examples(&text) {
            let ended = without_server(line);
            // `top` needs a terminal: it says so before it connects.
            let expected = if line == "luagate top" { 64 } else { 69 };
            assert_eq!(ended.code(), expected, "{file}: {line}: {ended:?}");
            count += 1;
        }
    }
    assert!(count >= 10, "only {count} examples");
}

#[test]
fn the_example_of_each_help_is_valid() {
    for command in
        ["run", "try", "acquire", "release", "refresh", "ls", "inspect", "revoke", "resize", "latch", "doctor"]
    {
        let help = bare().args([command, "--help"]).done().out();
        let example = help.split("Example: ").nth(1).unwrap().lines().next().unwrap();
        let ended = without_server(&example.replace(" --url redis://server/", ""));
        assert_eq!(ended.code(), 69, "{example}: {ended:?}");
    }
}
