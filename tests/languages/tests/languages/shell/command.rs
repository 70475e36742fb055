//! The command: its input, its environment and its end.

use super::{Log, NO_REPLY, ROOT, Scene, TIMED_OUT, Test, alive, end_of, found, only, output_of, script, stderr};
use crate::support::eventually;
use libtest_mimic::Failed;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::process::{Child, Command};

type Shell = super::Shell;

pub const TESTS: [Test; 10] = [
    ("runs_the_command_and_ends_with_its_exit_status", runs),
    ("at_most_as_many_commands_run_as_there_are_permits", limit),
    ("no_permit_in_time_is_reported_and_the_place_in_line_is_released", in_time),
    ("the_command_reads_the_input_of_with_permit", input),
    ("the_command_gets_name_id_and_fence_in_its_environment", environment),
    ("a_command_that_cannot_be_run_ends_with_126_or_127", cannot_be_run),
    ("no_process_of_the_group_outlives_the_command", left_behind),
    ("a_shell_with_job_control_needs_no_setsid", no_setsid),
    ("the_scripts_are_found_through_links_and_in_another_folder", scripts),
    ("kind_prefix_and_label_can_be_set", chosen),
];

fn runs(shell: Shell) -> Result<(), Failed> {
    let scene = Scene::new(shell);
    let output = scene.with_permit(2, 60, "echo \"$0\"; exit 3").output()?;
    assert_eq!((&*output.stdout, &*stderr(&output)), (&b"sh\n"[..], ""));
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(scene.in_use(), 0);
    Ok(())
}

fn limit(shell: Shell) -> Result<(), Failed> {
    let scene = Scene::new(shell);
    // Each command logs its begin and its end.
    let log = Log::new();
    let line = format!("echo 1 >>{0}; sleep 0.2; echo -1 >>{0}", log.path.display());
    let start = || scene.with_permit(2, 60, &line).spawn().unwrap();
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
    assert_eq!(scene.in_use(), 0);
    Ok(())
}

fn in_time(shell: Shell) -> Result<(), Failed> {
    let scene = Scene::new(shell);
    let held = scene.semaphore.try_acquire_many(2)?;
    for seconds in [0, 1] {
        let mut child = scene.with_permit(2, seconds, "echo inside").spawn()?;
        let output = output_of(&mut child);
        let says = format!(
            "with-permit: luagate:semaphore:{{batch}}: no permit was granted within {seconds} s. Try again later\n"
        );
        assert_eq!((output.status.code(), stderr(&output)), (Some(TIMED_OUT), says));
        assert_eq!(output.stdout, b"");
        assert_eq!(scene.waiter_count(), 0);
    }
    let mut waits = scene.with_permit(2, 60, "true").spawn()?;
    eventually("the caller waits", || (scene.waiter_count() == 1).then_some(()));
    held.release()?;
    assert!(end_of(&mut waits).success());
    Ok(())
}

fn input(shell: Shell) -> Result<(), Failed> {
    let scene = Scene::new(shell);
    let mut child = scene.with_permit(2, 60, "cat").spawn()?;
    child.stdin.take().unwrap().write_all(b"one\ntwo\n")?;
    let output = child.wait_with_output()?;
    assert_eq!(String::from_utf8_lossy(&output.stdout), "one\ntwo\n");
    Ok(())
}

fn environment(shell: Shell) -> Result<(), Failed> {
    let scene = Scene::new(shell);
    let line = "echo $LUAGATE_NAME $LUAGATE_ID $LUAGATE_FENCE; read line";
    let mut child = scene.with_permit(2, 60, line).spawn()?;
    scene.waits_for(1);
    let holder = scene.semaphore.inspect()?.holders.remove(0);
    child.stdin.take().unwrap().write_all(b"go on\n")?;
    let output = child.wait_with_output()?;
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("batch {} {}\n", holder.id, holder.fence));
    Ok(())
}

fn cannot_be_run(shell: Shell) -> Result<(), Failed> {
    let scene = Scene::new(shell);
    for (program, status) in [("/nonexistent", 127), ("/", 126)] {
        let arguments = ["batch", "2", "60", program];
        let output = script(shell, &scene.server.url, &arguments).output()?;
        assert_eq!(output.status.code(), Some(status), "{}", stderr(&output));
        assert!(stderr(&output).contains(program), "{}", stderr(&output));
        assert_eq!(scene.in_use(), 0);
    }
    Ok(())
}

/// Starts a process that ignores TERM and outlives the command, and prints its id.
const LEAVES_ONE: &str = "(trap '' TERM; sleep 60; sleep 60) >/dev/null 2>&1 & echo $!; exit 3";

fn left_behind(shell: Shell) -> Result<(), Failed> {
    let scene = Scene::new(shell);
    let output = scene.with_permit(2, 60, LEAVES_ONE).output()?;
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    let left = String::from_utf8(output.stdout)?;
    assert_eq!(alive(left.trim()), [""; 0]);
    assert_eq!(scene.in_use(), 0);
    Ok(())
}

fn no_setsid(shell: Shell) -> Result<(), Failed> {
    let scene = Scene::new(shell);
    let path = only(&["redis-cli", "awk", "cat", "env", "grep", "sed", "sh", "sleep", "tr"]);
    let arguments = ["batch", "2", "60", "sh", "-c", LEAVES_ONE];
    let mut command = script(found(shell).to_str().unwrap().to_owned().leak(), &scene.server.url, &arguments);
    let output = command.env("PATH", path.path()).output()?;
    if shell == "bash" {
        assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
        let left = String::from_utf8(output.stdout)?;
        assert_eq!(alive(left.trim()), [""; 0]);
    } else {
        let expected =
            "with-permit: setsid is missing. Install it (Debian: apt install util-linux), or run this with bash\n"
                .to_owned();
        assert_eq!((&*output.stdout, stderr(&output)), (&b""[..], expected));
        assert_eq!(output.status.code(), Some(NO_REPLY));
    }
    Ok(())
}

fn chosen(shell: Shell) -> Result<(), Failed> {
    let scene = Scene::new(shell);
    let gate = luagate::Gate::builder(&scene.server.url).prefix("app:1").open()?;
    let mutex = gate.mutex("{accounts}:17");
    let arguments = ["{accounts}:17", "1", "60", "sh", "-c", "read line"];
    let mut child = script(shell, &scene.server.url, &arguments)
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
    assert!(mutex.try_lock().is_err(), "another mutex");
    drop(child.stdin.take());
    end_of(&mut child);
    assert_eq!(mutex.inspect()?.in_use, 0);
    Ok(())
}

/// With a link, the scripts are beside the file that the link leads to.
fn scripts(shell: Shell) -> Result<(), Failed> {
    let scene = Scene::new(shell);
    let folder = tempfile::tempdir()?;
    let links = [folder.path().join("first"), folder.path().join("second")];
    symlink(format!("{ROOT}/clients/shell/with-permit"), &links[0])?;
    symlink("first", &links[1])?;
    for lua in [None, Some(format!("{ROOT}/lua")), Some("/nonexistent".to_owned())] {
        let mut command = Command::new(shell);
        command.arg(&links[1]).args(["batch", "2", "60", "echo", "inside"]).env("REDIS_URL", &scene.server.url);
        if let Some(lua) = &lua {
            command.env("LUAGATE_LUA", lua);
        }
        let output = command.output()?;
        if lua.as_deref() == Some("/nonexistent") {
            assert_eq!((output.status.code(), &*output.stdout), (Some(NO_REPLY), &b""[..]));
            assert!(stderr(&output).starts_with("with-permit: no scripts of contract 1 in /nonexistent. Install"));
        } else {
            assert_eq!((&*output.stdout, &*stderr(&output)), (&b"inside\n"[..], ""));
        }
    }
    Ok(())
}
