//! What the command is given, and how its end is told.

use super::{Home, Log, NOT_IN_TIME, Test, alive, end_of, found, only, said, script};
use crate::support::eventually;
use libtest_mimic::Failed;
use std::io::Write;
use std::process::Child;

type Shell = super::Shell;

pub const TESTS: [Test; 9] = [
    ("runs_what_it_is_told_and_ends_as_that_does", runs),
    ("as_many_at_once_as_there_are_permits", limit),
    ("says_when_there_was_no_permit_in_time", in_time),
    ("the_command_reads_the_input", input),
    ("the_command_knows_its_name_id_and_fence", environment),
    ("a_command_that_cannot_be_run_ends_with_126_or_127", cannot_be_run),
    ("no_process_of_the_group_outlives_the_command", left_behind),
    ("a_shell_with_job_control_needs_no_setsid", no_setsid),
    ("a_mutex_a_prefix_and_a_label_can_be_chosen", chosen),
];

fn runs(shell: Shell) -> Result<(), Failed> {
    let home = Home::new(shell);
    let output = home.with_permit(2, 60, "echo \"$0\"; exit 3").output()?;
    assert_eq!((&*output.stdout, &*said(&output)), (&b"sh\n"[..], ""), "and nothing else is said");
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(home.in_use(), 0);
    Ok(())
}

fn limit(shell: Shell) -> Result<(), Failed> {
    let home = Home::new(shell);
    // Each writes that it came, stays for a while, and writes that it goes.
    let log = Log::new();
    let line = format!("echo 1 >>{0}; sleep 0.2; echo -1 >>{0}", log.path.display());
    let start = || home.with_permit(2, 60, &line).spawn().unwrap();
    let mut children: Vec<Child> = (0..6).map(|_| start()).collect();
    for child in &mut children {
        assert!(end_of(child).success());
    }
    let (mut inside, mut most) = (0, 0);
    for change in log.lines() {
        inside += change.parse::<i32>()?;
        most = most.max(inside);
    }
    assert_eq!(log.lines().len(), 12);
    assert_eq!(most, 2);
    assert_eq!(home.in_use(), 0);
    Ok(())
}

fn in_time(shell: Shell) -> Result<(), Failed> {
    let home = Home::new(shell);
    let held = home.semaphore.try_acquire_many(2)?;
    for seconds in [0, 1] {
        let mut child = home.with_permit(2, seconds, "echo inside").spawn()?;
        assert_eq!(end_of(&mut child).code(), Some(NOT_IN_TIME));
        assert_eq!(home.waiter_count(), 0);
    }
    let mut waits = home.with_permit(2, 60, "true").spawn()?;
    eventually("it waits", || (home.waiter_count() == 1).then_some(()));
    held.release()?;
    assert!(end_of(&mut waits).success());
    Ok(())
}

fn input(shell: Shell) -> Result<(), Failed> {
    let home = Home::new(shell);
    let mut child = home.with_permit(2, 60, "cat").spawn()?;
    child.stdin.take().unwrap().write_all(b"one\ntwo\n")?;
    let output = child.wait_with_output()?;
    assert_eq!(String::from_utf8_lossy(&output.stdout), "one\ntwo\n");
    Ok(())
}

fn environment(shell: Shell) -> Result<(), Failed> {
    let home = Home::new(shell);
    let line = "echo $LUAGATE_NAME $LUAGATE_ID $LUAGATE_FENCE; read line";
    let mut child = home.with_permit(2, 60, line).spawn()?;
    home.waits_for(1);
    let holder = home.semaphore.inspect()?.holders.remove(0);
    child.stdin.take().unwrap().write_all(b"go on\n")?;
    let output = child.wait_with_output()?;
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("batch {} {}\n", holder.id, holder.fence));
    Ok(())
}

fn cannot_be_run(shell: Shell) -> Result<(), Failed> {
    let home = Home::new(shell);
    for (program, status) in [("/nonexistent", 127), ("/", 126)] {
        let arguments = ["batch", "2", "60", program];
        let output = script(shell, &home.server.url, &arguments).output()?;
        assert_eq!(output.status.code(), Some(status), "{}", said(&output));
        assert!(said(&output).contains(program), "{}", said(&output));
        assert_eq!(home.in_use(), 0);
    }
    Ok(())
}

/// Leaves a process behind that ignores TERM, and says which.
const LEAVES_ONE: &str = "(trap '' TERM; sleep 60; sleep 60) >/dev/null 2>&1 & echo $!; exit 3";

fn left_behind(shell: Shell) -> Result<(), Failed> {
    let home = Home::new(shell);
    let output = home.with_permit(2, 60, LEAVES_ONE).output()?;
    assert_eq!(output.status.code(), Some(3), "{}", said(&output));
    let left = String::from_utf8(output.stdout)?;
    assert_eq!(alive(left.trim()), [""; 0]);
    assert_eq!(home.in_use(), 0);
    Ok(())
}

fn no_setsid(shell: Shell) -> Result<(), Failed> {
    let home = Home::new(shell);
    let path = only(&["redis-cli", "awk", "cat", "env", "grep", "sed", "sh", "sleep", "tr"]);
    let arguments = ["batch", "2", "60", "sh", "-c", LEAVES_ONE];
    let mut command = script(found(shell).to_str().unwrap().to_owned().leak(), &home.server.url, &arguments);
    let output = command.env("PATH", path.path()).output()?;
    if shell == "bash" {
        assert_eq!(output.status.code(), Some(3), "{}", said(&output));
        let left = String::from_utf8(output.stdout)?;
        assert_eq!(alive(left.trim()), [""; 0]);
    } else {
        let expected = "with-permit: needs setsid, or a shell with job control such as bash\n".to_owned();
        assert_eq!((&*output.stdout, said(&output)), (&b""[..], expected));
        assert_eq!(output.status.code(), Some(super::NO_ANSWER));
    }
    Ok(())
}

fn chosen(shell: Shell) -> Result<(), Failed> {
    let home = Home::new(shell);
    let gate = luagate::Gate::builder(&home.server.url).prefix("app:1").open()?;
    let mutex = gate.mutex("{accounts}:17");
    let arguments = ["{accounts}:17", "1", "60", "sh", "-c", "read line"];
    let mut child = script(shell, &home.server.url, &arguments)
        .env("LUAGATE_KIND", "mutex")
        .env("LUAGATE_PREFIX", "app:1")
        .env("LUAGATE_LABEL", "worker/7")
        .spawn()?;
    let id = eventually("the mutex is held", || {
        let holders = mutex.inspect().unwrap().holders;
        holders.first().map(|holder| holder.id.clone())
    });
    let uuid = id.strip_prefix("worker/7/").ok_or("no label")?;
    assert!(uuid::Uuid::try_parse(uuid).is_ok(), "{id}");
    assert!(mutex.try_lock().is_err(), "it is one mutex for both");
    drop(child.stdin.take());
    end_of(&mut child);
    assert_eq!(mutex.inspect()?.in_use, 0);
    Ok(())
}
