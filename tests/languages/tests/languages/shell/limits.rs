//! A bounded line, a minimum hold, a head start, and permits of several semaphores.

use super::{LOST, Shell, TIMED_OUT, Test, end_of, output_of, script, stderr, with_permit};
use crate::languages::limits::waiter;
use crate::support::raw::Raw;
use crate::support::{SOON, assert_in_time, eventually};
use libtest_mimic::Failed;
use luagate::scripts::semaphore::Ask;
use luagate::{Gate, Semaphore};
use std::process::{Child, Command};
use std::thread::sleep;
use std::time::{Duration, Instant};

pub const TESTS: [Test; 9] = [
    ("a_full_line_is_reported_at_once_with_its_length", full_line),
    ("a_permit_released_early_stays_in_use_until_its_minimum_hold_ends", minimum_hold),
    ("with_a_head_start_it_is_granted_after_earlier_and_before_later_waiters", head_start),
    ("behind_dead_waiters_a_permit_is_granted_soon_after_the_lease_of_a_dead_holder", dead),
    ("several_are_held_together_and_released", several),
    ("if_one_of_several_is_not_granted_nothing_runs_and_nothing_is_held", not_all),
    ("several_are_renewed_during_the_wait_and_while_the_command_runs", renews),
    ("nothing_runs_if_one_of_several_was_lost", lost),
    ("several_are_acquired_by_limit_and_then_by_the_bytes_of_their_keys", order),
];

const FULL: i32 = 80;

/// A server with two more semaphores.
struct Both {
    scene: super::Scene,
    user: Semaphore,
    total: Semaphore,
}

impl Both {
    fn new(shell: Shell) -> Both {
        let scene = super::Scene::new(shell);
        let gate = Gate::open(&scene.server.url).unwrap();
        Both { scene, user: gate.semaphore("user*", 1), total: gate.semaphore("{g}:total", 3) }
    }

    /// Runs a line of shell with a permit of both. The semaphore with the higher limit comes first.
    fn with_both(&self, seconds: u32, line: &str) -> Command {
        let arguments = ["--and", "{g}:total:3", "user*", "1", &seconds.to_string(), "sh", "-c", line];
        let mut command = script(self.scene.shell, &self.scene.server.url, &arguments);
        command.env("LUAGATE_LEASE", "3");
        command
    }

    /// Acquires all permits of `total`. Waits until the caller holds `user` and waits for `total`.
    fn waits(&self) -> Result<(luagate::Permit, Child), Failed> {
        let held = self.total.try_acquire_all()?;
        let child = self.with_both(60, "echo inside; read line").spawn()?;
        eventually("the caller waits", || (waiter_count(&self.total) == 1).then_some(()));
        assert_eq!(in_use(&self.user), 1);
        Ok((held, child))
    }

    /// It stays held for two leases.
    fn assert_user_is_held(&self) {
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(6) {
            assert_eq!(in_use(&self.user), 1, "the lease ended after {:?}", began.elapsed());
            sleep(Duration::from_millis(20));
        }
    }

    fn assert_free(&self) {
        let state = [in_use(&self.user), in_use(&self.total), waiter_count(&self.total) as u32];
        assert_eq!(state, [0, 0, 0]);
    }
}

fn in_use(semaphore: &Semaphore) -> u32 {
    semaphore.inspect().unwrap().in_use
}

fn waiter_count(semaphore: &Semaphore) -> u64 {
    semaphore.inspect().unwrap().waiter_count
}

fn full_line(shell: Shell) -> Result<(), Failed> {
    let scene = super::Scene::new(shell);
    let held = scene.semaphore.try_acquire_many(2)?;
    let mut waits = scene.with_permit(2, 60, ":").spawn()?;
    eventually("the caller waits", || (scene.waiter_count() == 1).then_some(()));
    let bounded = |most: &str, seconds: &str| {
        let arguments = ["--max-waiting", most, "batch", "2", seconds, "echo", "inside"];
        script(shell, &scene.server.url, &arguments)
    };
    let output = output_of(&mut bounded("1", "60").spawn()?);
    let expected = "with-permit: luagate:semaphore:{batch}: 1 callers wait in line already, and --max-waiting is 1. Try again later\n";
    assert_eq!((output.status.code(), &*stderr(&output)), (Some(FULL), expected));
    assert_eq!(output.stdout, b"");
    assert_eq!(scene.waiter_count(), 1);
    assert_eq!(end_of(&mut bounded("1", "0").spawn()?).code(), Some(TIMED_OUT));
    let mut second = bounded("2", "60").spawn()?;
    eventually("the caller waits", || (scene.waiter_count() == 2).then_some(()));
    held.release()?;
    assert!(end_of(&mut waits).success());
    assert!(end_of(&mut second).success());
    Ok(())
}

fn minimum_hold(shell: Shell) -> Result<(), Failed> {
    let scene = super::Scene::new(shell);
    let began = Instant::now();
    let arguments = ["--at-least", "2", "batch", "2", "0", "true"];
    assert!(script(shell, &scene.server.url, &arguments).status()?.success());
    assert_eq!(scene.in_use(), 1);
    let both = scene.semaphore.acquire_many_timeout(2, SOON)?;
    assert!(began.elapsed() >= Duration::from_secs(2), "{:?}", began.elapsed());
    both.release()?;
    Ok(())
}

fn head_start(shell: Shell) -> Result<(), Failed> {
    let scene = super::Scene::new(shell);
    let held = scene.semaphore.try_acquire_many(2)?;
    // As if it had come a minute ago.
    let early = waiter(&scene.semaphore.clone().head_start(Duration::from_secs(60)));
    let late = waiter(&scene.semaphore);
    let arguments = ["--head-start", "30", "batch", "2", "60", "sh", "-c", "echo $LUAGATE_FENCE"];
    let mut child = script(shell, &scene.server.url, &arguments).spawn()?;
    eventually("the caller waits", || (scene.waiter_count() == 3).then_some(()));
    held.release()?;
    let fence = fence_of(&mut child)?;
    let (early, late) = (early.join().unwrap(), late.join().unwrap());
    assert!(early < fence, "it overtook a waiter that came earlier than its head start");
    assert!(fence < late, "it did not overtake a waiter that came within its head start");
    Ok(())
}

/// The fence that the command prints.
fn fence_of(child: &mut Child) -> Result<u64, Failed> {
    let output = output_of(child);
    assert_eq!(stderr(&output), "");
    Ok(String::from_utf8(output.stdout)?.trim().parse()?)
}

/// A killed process leaves behind ids that call no more, and an inbox that nobody hears.
fn dead(shell: Shell) -> Result<(), Failed> {
    let server = crate::server();
    let mut raw = Raw::named(&server, "batch", 1);
    let mut round = 0;
    // The command asks once a second, and when the first lease ends.
    assert_in_time(Duration::from_millis(500), || {
        round += 1;
        let lease_end = raw.grant(Ask { lease_ms: 1_400, ..raw.ask(&format!("holder{round}")) }).expires_at;
        for waiter in 0..5 {
            raw.queue(Ask { wait_ms: 60_000, inbox: "nobody:listens", ..raw.ask(&format!("dead{round}-{waiter}")) });
        }
        let mut command = with_permit(shell, &server.url, 1, 60, "echo $LUAGATE_FENCE");
        let mut child = command.env("LUAGATE_PREFIX", &server.prefix).spawn().unwrap();
        let fence = fence_of(&mut child).unwrap();
        Duration::from_millis(fence / 1_000 - lease_end.expect("a lease")) // the fence is the time of the grant in µs
    });
    Ok(())
}

fn several(shell: Shell) -> Result<(), Failed> {
    let both = Both::new(shell);
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("1:{users}"), "a file that a shell could take the name for")?;
    let line = "echo $LUAGATE_NAME $LUAGATE_ID $LUAGATE_FENCE; read line; exit 3";
    let mut command = both.with_both(0, line);
    let child = command.current_dir(folder.path()).spawn()?;
    eventually("both are held", || (in_use(&both.total) == 1 && in_use(&both.user) == 1).then_some(()));
    let [total, user] = [&both.total, &both.user].map(|semaphore| semaphore.inspect().unwrap().holders.remove(0));
    let output = child.wait_with_output()?;
    let expected = format!("{{g}}:total user* {} {} {}\n", user.id, total.fence, user.fence);
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
    assert_eq!((output.status.code(), &*stderr(&output)), (Some(3), ""));
    both.assert_free();
    Ok(())
}

fn not_all(shell: Shell) -> Result<(), Failed> {
    let both = Both::new(shell);
    for (blocked, permits) in [(&both.total, 3), (&both.user, 1)] {
        let held = blocked.try_acquire_many(permits)?;
        for seconds in [0, 1] {
            let output = output_of(&mut both.with_both(seconds, "echo inside").spawn()?);
            assert_eq!((output.status.code(), &*output.stdout), (Some(TIMED_OUT), &b""[..]));
            assert_eq!(in_use(&both.user) + in_use(&both.total), permits);
            assert_eq!(waiter_count(blocked), 0);
        }
        held.release()?;
    }
    Ok(())
}

fn renews(shell: Shell) -> Result<(), Failed> {
    let both = Both::new(shell);
    let (held, mut child) = both.waits()?;
    both.assert_user_is_held();
    held.release()?;
    eventually("both are held", || (in_use(&both.total) == 1).then_some(()));
    both.assert_user_is_held();
    assert_eq!(in_use(&both.total), 1);
    drop(child.stdin.take());
    let output = output_of(&mut child);
    assert_eq!(output.stdout, b"inside\n");
    both.assert_free();
    Ok(())
}

fn lost(shell: Shell) -> Result<(), Failed> {
    for is_noticed in [true, false] {
        let both = Both::new(shell);
        let (held, mut child) = both.waits()?;
        let holder = both.user.inspect()?.holders.remove(0);
        both.user.revoke(&holder.id)?;
        if is_noticed {
            eventually("the caller leaves the line", || (waiter_count(&both.total) == 0).then_some(()));
        }
        held.release()?;
        let output = output_of(&mut child);
        let says = "with-permit: the permit was lost: it was revoked, or the server lost its data\n";
        assert_eq!((output.status.code(), &*stderr(&output)), (Some(LOST), says));
        assert_eq!(output.stdout, b"");
        both.assert_free();
    }
    Ok(())
}

fn order(shell: Shell) -> Result<(), Failed> {
    let scene = super::Scene::new(shell);
    let gate = Gate::open(&scene.server.url)?;
    for (first, second, limits) in [("z", "a", [1, 5]), ("\u{ff61}", "\u{1f600}", [3, 3]), ("b", "c", [9, 10])] {
        let (narrow, wide) = (gate.semaphore(first, limits[0]), gate.semaphore(second, limits[1]));
        let held = narrow.try_acquire_all()?;
        let and = format!("{second}:{}", limits[1]);
        let arguments = ["--and", &and, first, &limits[0].to_string(), "60", "true"];
        let mut child = script(shell, &scene.server.url, &arguments).spawn()?;
        eventually("the caller waits for one", || (waiter_count(&narrow) == 1).then_some(()));
        assert_eq!(in_use(&wide), 0, "{second} is held while {first} is waited for");
        held.release()?;
        assert!(end_of(&mut child).success());
    }
    Ok(())
}
