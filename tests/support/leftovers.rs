//! No process that a test starts is left behind, also if the test fails or the test program is killed. Until
//! then the processes carry a mark in their environment, and so do those that they start. When the test
//! program has ended, a watcher ends all processes with this mark.

use std::process::{ChildStdin, Command, Stdio};
use std::sync::LazyLock;

/// The variable with the mark.
pub const MARK: &str = "LUAGATE_TEST_PROGRAM";

/// Its input ends with the test program, however that ends. A process that is ended may just have started
/// another one.
const WATCH: &str = r#"
    trap '' HUP INT TERM
    cat >/dev/null
    for round in 1 2 3 4 5 6 7 8 9 10; do
        left=$(grep -lz "^$1\$" /proc/[0-9]*/environ 2>/dev/null)
        [ -n "$left" ] || exit 0
        for file in $left; do
            process=${file#/proc/}
            kill -KILL "${process%/environ}" 2>/dev/null
        done
        sleep 0.1
    done"#;

struct Program {
    mark: String,
    /// Nothing is written. The system closes it.
    _input: Option<ChildStdin>,
}

static PROGRAM: LazyLock<Program> = LazyLock::new(|| {
    // A process of a test has the mark of the program that started it.
    if let Ok(mark) = std::env::var(MARK) {
        return Program { mark, _input: None };
    }
    let mark = uuid::Uuid::new_v4().simple().to_string();
    if !cfg!(target_os = "linux") {
        return Program { mark, _input: None };
    }
    let mut watcher = Command::new("sh");
    watcher.args(["-c", WATCH, "sh", &format!("{MARK}={mark}")]);
    watcher.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut watcher, 0); // an interrupt from the terminal does not end it
    let input = watcher.spawn().expect("sh starts").stdin;
    Program { mark, _input: input }
});

/// The value of the variable, for a process that this test program starts.
pub fn mark() -> &'static str {
    &PROGRAM.mark
}
