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
        assert_eq!(bare().arg("help").args(words(command)).done().out(), text, "{command}");
    }
    let help = bare().arg("--help").done().out();
    for word in ["LUAGATE_URL", "REDIS_URL", "--password-file", "--prefix", "--ca", "--cert", "--key"] {
        assert!(help.contains(word), "{word}:\n{help}");
    }
}

#[test]
fn each_command_has_a_man_page_with_all_sections_and_the_date_of_the_release() {
    let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
    for folder in &folders {
        assert_eq!(bare().arg("man").arg(folder.path()).done().code(), 0);
    }
    let read = |name: &str| {
        folders.each_ref().map(|folder| std::fs::read_to_string(folder.path().join(name)).unwrap())
    };
    for command in COMMANDS {
        let words: Vec<&str> = command.split(' ').filter(|word| !["", "a"].contains(word)).collect();
        let name = [&["luagate"][..], &words].concat().join("-");
        let [page, again] = read(&format!("{name}.1"));
        assert_eq!(page, again, "each build writes the same");
        let mut sections: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix(".SH ")).collect();
        sections.retain(|section| *section != "SUBCOMMANDS");
        let expected = [
            "NAME",
            "SYNOPSIS",
            "DESCRIPTION",
            "OPTIONS",
            "\"EXIT STATUS\"",
            "ENVIRONMENT",
            "SIGNALS",
            "EXAMPLES",
            "\"SEE ALSO\"",
        ];
        assert_eq!(sections, expected, "{name}");
        assert!(page.lines().any(|line| line.starts_with(".TH ") && line.contains("202")), "{page}");
        assert!(!page.contains("guard"), "{name}");
    }
    let [page, _] = read("luagate-run.1");
    for text in [
        "max\\-waiting",
        "[\\-n LIMIT] NAME... \\-\\- COMMAND",
        "\\fB79\\fR",
        "LUAGATE_FENCE",
        "WINCH",
        "./trade",
    ] {
        assert!(page.contains(text), "{text}:\n{page}");
    }
    assert!(!folders[0].path().join("luagate-guard.1").exists());
    let missing = bare().args(words("man /nowhere/at/all")).done();
    assert_eq!(missing.code(), 64, "{missing:?}");
}

#[test]
fn the_version_is_that_of_the_package() {
    assert_eq!(bare().arg("--version").done().out(), format!("luagate {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn the_help_of_try_shows_no_option_of_a_wait() {
    let help = bare().args(words("try --help")).done().out();
    assert!(
        !help.contains("--wait") && !help.contains("--max-waiting") && help.contains("Example: luagate try"),
        "{help}"
    );
    let unknown = bare().args(words("help walk")).done();
    assert_eq!((unknown.code(), unknown.out()), (64, String::new()), "{unknown:?}");
}
