//! `--help`, completions and man pages.

use super::tool::{Run, Text, bare, words};

const COMMANDS: [&str; 16] = [
    "",
    "run",
    "try",
    "acquire",
    "release",
    "refresh",
    "ls",
    "inspect",
    "top",
    "revoke",
    "resize",
    "latch",
    "latch a wait",
    "doctor",
    "export",
    "completions",
];

#[test]
fn each_help_fits_a_screen_and_has_an_example() {
    for command in COMMANDS {
        let help = bare().args(words(command)).arg("-h").done();
        let text = help.out();
        assert_eq!(help.code(), 0, "{command}");
        assert!(text.contains("Example: "), "{command}:\n{text}");
        assert!(text.lines().count() <= 24, "{command}: {} lines\n{text}", text.lines().count());
        let long = text.lines().find(|line| line.chars().count() > 80);
        assert_eq!(long, None, "{command}:\n{text}");
        assert_eq!(bare().args(words(command)).arg("--help").done().out(), text, "{command}");
    }
    let help = bare().arg("--help").done().out();
    for word in ["LUAGATE_URL", "REDIS_URL", "--prefix", "--ca", "--cert", "--key"] {
        assert!(help.contains(word), "{word}:\n{help}");
    }
}

#[test]
fn each_option_is_completed_and_has_a_man_page() {
    let completions = bare().args(words("completions bash")).done().out();
    assert!(completions.contains("--max-waiting"));
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(bare().arg("man").arg(folder.path()).done().code(), 0);
    let page = std::fs::read_to_string(folder.path().join("luagate-run.1")).unwrap();
    assert!(page.contains("max\\-waiting"), "{page}");
    let missing = bare().args(words("man /nowhere/at/all")).done();
    assert_eq!(missing.code(), 64, "{missing:?}");
}

#[test]
fn the_version_is_that_of_the_package() {
    assert_eq!(bare().arg("--version").done().out(), format!("luagate {}\n", env!("CARGO_PKG_VERSION")));
}
