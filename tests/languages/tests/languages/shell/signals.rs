//! Signals. Each reaches all processes of the command. Afterwards no permit is held, and no place in line.

use super::{Log, Scene, Shell, Test, alive, before_path, end_of, found, put_program, stderr};
use crate::support::{eventually, signal, within};
use libtest_mimic::Failed;
use std::process::Child;
use std::time::{Duration, Instant};

pub const TESTS: [Test; 6] = [
    ("a_signal_reaches_every_process_of_the_command", reaches_all),
    ("the_exit_status_reports_the_signal_that_ended_the_command", reported),
    ("a_signal_during_the_wait_releases_the_place_in_line", gives_up),
    ("a_signal_at_any_moment_leaves_no_permit_and_no_process", at_any_moment),
    ("a_signal_before_the_command_has_its_group_reaches_it", early),
    ("without_a_modern_env_the_interrupt_key_ends_the_command", old_env),
];

const SIGNALS: [(&str, i32); 4] = [("HUP", 1), ("INT", 2), ("QUIT", 3), ("TERM", 15)];

fn reaches_all(shell: Shell) -> Result<(), Failed> {
    for (name, _) in SIGNALS {
        let scene = Scene::new(shell);
        let log = Log::new();
        // The inner shell ends only if the signal reaches it. Then the outer shell ends with another status.
        let inner = format!("trap \\\"echo inner; exit\\\" {name}; echo ready; while :; do sleep 0.05; done");
        let line = format!("trap 'echo outer; exit 5' {name}; sh -c \"{inner}\"; echo too far");
        let line = format!("exec >>{}; {line}", log.path.display());
        let mut child = scene.with_permit(2, 60, &line).spawn()?;
        log.has_lines(1);
        signal(&format!("-{name}"), child.id());
        let output = super::output_of(&mut child);
        assert_eq!(log.lines(), ["ready", "inner", "outer"], "{name}");
        assert_eq!(output.status.code(), Some(5), "{name}: {}", stderr(&output));
        assert_eq!(scene.in_use(), 0);
    }
    Ok(())
}

fn reported(shell: Shell) -> Result<(), Failed> {
    for (name, number) in SIGNALS {
        let scene = Scene::new(shell);
        let log = Log::new();
        let line = format!("echo ready >{}; exec sleep 60", log.path.display());
        let mut child = scene.with_permit(2, 60, &line).spawn()?;
        log.has_lines(1);
        signal(&format!("-{name}"), child.id());
        let output = super::output_of(&mut child);
        let expected = (Some(128 + number), "");
        assert_eq!((output.status.code(), &*stderr(&output)), expected, "{name}");
        assert_eq!(scene.in_use(), 0);
    }
    Ok(())
}

fn gives_up(shell: Shell) -> Result<(), Failed> {
    let scene = Scene::new(shell);
    let _held = scene.semaphore.try_acquire_many(2)?;
    for (name, number) in SIGNALS {
        let mut child = scene.with_permit(2, 60, "echo inside").spawn()?;
        eventually("the caller waits", || (scene.waiter_count() == 1).then_some(()));
        signal(&format!("-{name}"), child.id());
        // While bash acquires the permit, it can lose an INT: a user presses the key again.
        let has_ended = |child: &mut Child| within(Duration::from_secs(1), || child.try_wait().unwrap()).is_some();
        for _ in 0..8 {
            if name == "INT" && !has_ended(&mut child) {
                signal("-INT", child.id());
            }
        }
        let output = super::output_of(&mut child);
        let expected = (Some(128 + number), &b""[..]);
        assert_eq!((output.status.code(), &*output.stdout), expected, "{name}");
        assert_eq!(scene.waiter_count(), 0, "{name}");
    }
    Ok(())
}

fn early(shell: Shell) -> Result<(), Failed> {
    let scene = Scene::new(shell);
    let folder = tempfile::tempdir()?;
    let setsid = found("setsid");
    let text = format!("sleep 0.3; exec {} \"$@\"", setsid.display());
    put_program(folder.path(), "setsid", &text);
    let mut command = scene.with_permit(2, 60, "exec sleep 60");
    let mut child = command.env("PATH", before_path(folder.path())).spawn()?;
    scene.waits_for(1);
    signal("-TERM", child.id());
    assert_eq!(end_of(&mut child).code(), Some(128 + 15));
    assert_eq!(scene.in_use(), 0);
    Ok(())
}

fn old_env(shell: Shell) -> Result<(), Failed> {
    let scene = Scene::new(shell);
    let folder = tempfile::tempdir()?;
    let env = found("env");
    let text = format!("case $1 in --default*) exit 125 ;; esac; exec {} \"$@\"", env.display());
    put_program(folder.path(), "env", &text);
    for name in ["INT", "QUIT"] {
        let log = Log::new();
        let line = format!("echo ready >{}; exec sleep 60", log.path.display());
        let mut command = scene.with_permit(2, 60, &line);
        // Only this process and its children use the old env. The shell itself was started with the real one.
        let mut child = command.env("PATH", before_path(folder.path())).spawn()?;
        log.has_lines(1);
        signal(&format!("-{name}"), child.id());
        assert_eq!(end_of(&mut child).code(), Some(128 + 15));
        assert_eq!(scene.in_use(), 0);
    }
    Ok(())
}

fn at_any_moment(shell: Shell) -> Result<(), Failed> {
    let scene = Scene::new(shell);
    // One and a half times the time until the command has started.
    let mut span = Duration::ZERO;
    for step in 0..=30 {
        let log = Log::new();
        let line = format!("echo $$ >{}; exec sleep 60", log.path.display());
        let began = Instant::now();
        let mut child = scene.with_permit(2, 60, &line).spawn()?;
        if step == 0 {
            log.has_lines(1);
            span = began.elapsed() * 3 / 2;
        } else {
            std::thread::sleep(span * (step - 1) / 30);
        }
        signal("-TERM", child.id());
        assert!(!end_of(&mut child).success());
        if let Some(group) = log.lines().first() {
            assert_eq!(alive(group), [""; 0], "after {step} steps");
        }
        assert_eq!(scene.in_use(), 0, "after {step} steps");
    }
    Ok(())
}
