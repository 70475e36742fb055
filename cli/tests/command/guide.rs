//! The examples of the documentation.

use super::tool::{Run, Text, bare};
use crate::support::root;
use std::path::Path;
use std::process::Command;

/// The lines of the shell examples that call `luagate`.
fn examples(text: &str) -> Vec<&str> {
    let blocks = text.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    blocks.flat_map(str::lines).filter(|line| line.starts_with("luagate ")).collect()
}

/// Without a server, an example that is right ends with the status for that, and one with a wrong argument with another.
#[test]
fn the_arguments_of_every_example_are_valid() {
    let folder = Path::new(env!("CARGO_BIN_EXE_luagate")).parent().unwrap();
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    let mut count = 0;
    for file in ["README.md", "cli/README.md", "src/guide/command_line.md", "src/guide/observability.md"] {
        let text = std::fs::read_to_string(root().join(file)).unwrap();
        for line in examples(&text) {
            let ended = Command::new("sh")
                .args(["-c", line])
                .env("PATH", &path)
                .env("USER", "anna")
                .env("LUAGATE_URL", "redis://127.0.0.1:1/")
                .env_remove("LUAGATE_PREFIX")
                .done();
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
    let help = |command: &str| bare().args([command, "--help"]).done().out();
    for command in ["run", "try", "ls", "inspect", "revoke", "resize", "latch", "doctor"] {
        let text = help(command);
        let example = text.split("Example: ").nth(1).unwrap().lines().next().unwrap();
        let folder = Path::new(env!("CARGO_BIN_EXE_luagate")).parent().unwrap();
        let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
        let unreachable = ("LUAGATE_URL", "redis://127.0.0.1:1/");
        let example = example.replace(" --url redis://server/", "");
        let ended =
            Command::new("sh").args(["-c", &example]).env("PATH", path).env(unreachable.0, unreachable.1).done();
        assert_eq!(ended.code(), 69, "{example}: {ended:?}");
    }
}
