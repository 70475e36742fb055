//! The words of the command in place of those of the library, in the texts of its errors.

use std::fmt::Display;

/// A text of the library, and that of the command. The longer ones come first.
const TEXTS: [(&str, &str); 27] = [
    (
        "the wait was cancelled by its `Cancel` handle. Call again with a new handle to wait again",
        "the wait was cancelled. Run the command again to wait again",
    ),
    ("Call again to wait again, or use a longer timeout", "Run the command again, or raise --wait"),
    ("Call again to join the end of the line", "Run the command again to join the end of the line"),
    (". Call again", ". Run the command again"),
    ("then call again", "then run the command again"),
    ("Try again later, or wait in line", "Try again later, or wait in line with `luagate run`"),
    ("or raise `max_waiting`", "or raise --max-waiting"),
    (", or raise the timeout", ""),
    (
        "Take it over with `adopt`, release it with `revoke`, or use another id",
        "Release it with `luagate revoke`",
    ),
    (
        "the call passes no limit and none is stored. Pass a limit, or store one with `resize`",
        "no limit is stored. Declare one with -n LIMIT, or store one with `luagate resize --create`",
    ),
    ("with `resize`", "with `luagate resize`"),
    ("To let a limit expire, use `unpin_limit`", "To let a limit expire, use --unpin"),
    ("; `guide::production` lists all", ""),
    (", or lower `min_replicas`", ""),
    (". For a lease without an end, use `Lease::PERMANENT`", ""),
    ("Use a longer lease, or `Lease::fixed`", "Raise --lease"),
    ("To acquire without waiting, use `try_acquire`", "To acquire without waiting, use --try"),
    (
        "different gates or groups. Accepted: one gate and one group",
        "different groups. Accepted: names of one group",
    ),
    ("For any other semaphores use `acquire_timeout`", "For any other names, wait with `luagate run`"),
    (
        "this process is a fork of the one that opened the gate. Open a new gate in this process",
        "this process is a fork",
    ),
    ("or in what `credentials` returns", "or in the file of --password-file"),
    ("the function for credentials failed: ", "--password-file: "),
    ("or no function for credentials", "or no --password-file"),
    ("the function for credentials", "the reading of --password-file"),
    ("the feature `tls12` of `rustls`", "TLS 1.2"),
    ("`root_certificates`", "--ca"),
    ("`client_certificate`", "--cert and --key"),
];

/// The beginning of an error about an argument: its name in the library, and in the command.
const ARGUMENTS: [(&str, &str); 15] = [
    ("url", "the URL of the server"),
    ("credentials", "--password-file"),
    ("prefix", "--prefix"),
    ("root_certificates", "--ca"),
    ("client_certificate", "--cert and --key"),
    ("name", "NAME"),
    ("semaphores", "NAME"),
    ("limit", "LIMIT"),
    ("permits", "--permits"),
    ("lease", "--lease"),
    ("at_least", "--at-least"),
    ("head_start", "--head-start"),
    ("max_waiting", "--max-waiting"),
    ("label", "--label"),
    ("timeout", "--wait"),
];

/// The text of an error of the library.
pub fn of(error: impl Display) -> String {
    let mut text = error.to_string();
    for (library, command) in TEXTS {
        if text.contains(library) {
            text = text.replace(library, command);
        }
    }
    let argument = text.split_once(": ").and_then(|(what, why)| {
        ARGUMENTS.iter().find(|(library, _)| *library == what).map(|(_, command)| format!("{command}: {why}"))
    });
    argument.unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The page that lists all error texts of the library.
    const PAGE: &str = include_str!("../../src/guide/errors.md");

    /// Words in backquotes that are not of the library.
    const OTHERS: [&str; 3] = ["maxmemory", "{trade}:shield", "queued"];

    #[test]
    fn the_library_has_these_texts() {
        for (library, _) in TEXTS {
            assert!(PAGE.contains(library), "{library}");
        }
    }

    #[test]
    fn no_name_of_the_library_is_left_in_its_failures_and_outcomes() {
        let parts = PAGE.split("\n# ");
        let parts = parts.filter(|part| part.starts_with("Acquiring\n") || part.starts_with("Server\n"));
        let rows =
            parts.flat_map(str::lines).filter_map(|line| line.strip_prefix("| `` ")?.split_once(" `` | "));
        let texts: Vec<&str> = rows.map(|(text, _)| text).collect();
        assert!(texts.len() > 8, "{texts:?}");
        for text in texts {
            let text = of(text);
            for word in text.split('`').skip(1).step_by(2) {
                assert!(word.starts_with("luagate ") || OTHERS.contains(&word), "{text}");
            }
        }
    }

    #[test]
    fn an_argument_has_the_name_of_its_option() {
        assert_eq!(of("head_start: 48h is out of range"), "--head-start: 48h is out of range");
        assert_eq!(of("denied: a: 1 of 1"), "denied: a: 1 of 1");
    }
}
