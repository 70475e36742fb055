//! Nothing of the command outlives the lease, whatever the network does.

use super::{Home, LOST, Log, Shell, Test, alive, said, with_permit};
use crate::support::proxy::Proxy;
use crate::support::{Server, eventually};
use libtest_mimic::Failed;
use luagate::scripts::Keys;
use redis::{Commands, Connection};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Output};
use std::time::Duration;

pub const TESTS: [Test; 8] = [
    ("a_silent_network_lets_no_process_outlive_the_lease", silent),
    ("a_stopped_server_lets_no_process_outlive_the_lease", stopped),
    ("refused_connections_let_no_process_outlive_the_lease", refused),
    ("a_late_grant_lets_no_process_outlive_the_lease", late_grant),
    ("a_late_renewal_lets_no_process_outlive_the_lease", late_renewal),
    ("a_closed_or_stopped_terminal_lets_no_process_outlive_the_lease", terminal),
    ("renews_while_the_command_runs", renews),
    ("a_revoked_permit_ends_the_command_and_is_told", revoked),
];

const NOT_RENEWED: &str = "with-permit: the permit is lost: its lease could not be renewed in time\n";

/// A command that ignores TERM, as does a child of it. Both write the time into the log, in ms, until they are killed.
fn stamps(log: &Log) -> String {
    let file = log.path.display();
    format!(
        "echo $$ >{file}; trap '' TERM HUP
        stamp() {{ while :; do date +%s%3N >>{file}; sleep 0.02; done; }}
        stamp & stamp"
    )
}

/// A server with a proxy in front, and `with-permit` behind that, which runs such a command.
struct Scene {
    home: Home,
    proxy: Proxy,
    /// A server that accepts connections and answers nothing.
    nobody: Server,
    /// To the server.
    con: Connection,
    /// The latest end of the lease that was seen.
    lease_end: u64,
    log: Log,
    child: Child,
}

impl Scene {
    fn new(shell: Shell) -> Scene {
        Scene::after(shell, |_| ())
    }

    /// Does this with the proxy first.
    fn after(shell: Shell, first: impl FnOnce(&Proxy)) -> Scene {
        let home = Home::new(shell);
        let proxy = Proxy::new(&home.server);
        let mut nobody = crate::server();
        nobody.pause();
        let mut con = home.server.connection();
        let log = Log::new();
        // From here on the server has the scripts, so that each call has one reply.
        assert!(home.with_permit(1, 60, ":").status().unwrap().success());
        first(&proxy);
        let mut command = with_permit(shell, &proxy.url, 1, 60, &stamps(&log));
        command.process_group(0).env("LUAGATE_LEASE", "3");
        let child = command.spawn().unwrap();
        let lease_end = eventually("it is granted", || lease_end(&mut con));
        Scene { home, proxy, nobody, con, lease_end, log, child }
    }

    /// From now on connections are accepted, and nothing is answered on them.
    fn go_silent(&self) {
        self.proxy.lead_to(&self.nobody);
    }

    /// Waits until the permit was renewed, or released, as it may be on a machine that is too busy.
    fn wait_for_renewal(&mut self) {
        self.lease_end = renewed(&mut self.con, self.lease_end).unwrap_or(self.lease_end);
    }

    /// To `with-permit` and all processes of its own, but not to the command.
    fn signal(&self, name: &str) {
        let group = format!("-{}", self.child.id());
        let sent = Command::new("kill").args([name, "--", &group]).status();
        assert!(sent.unwrap().success());
    }

    /// Waits for the end; checks that it is told, and that nothing runs any more. Returns the time of the last sign of life.
    fn end(&mut self) -> u64 {
        let output = super::output_of(&mut self.child);
        assert_lost(&output, NOT_RENEWED);
        assert_eq!(alive(&self.group()), [""; 0]);
        self.log.lines().last().unwrap().parse().unwrap()
    }

    /// Waits for the end, and checks that the last sign of life was before the end of the lease.
    #[track_caller]
    fn ends_within_the_lease(&mut self) {
        let last = self.end();
        assert_within(last, lease_end(&mut self.con).unwrap_or(self.lease_end));
    }

    fn group(&self) -> String {
        self.log.lines().remove(0)
    }
}

/// Reads when the lease of the only permit ends, in ms by the server's clock, which is that of this machine. None: nobody holds
/// it.
fn lease_end(con: &mut Connection) -> Option<u64> {
    let keys = Keys::semaphore("luagate", "batch").unwrap();
    let held: Vec<(String, f64)> = con.zrange_withscores(keys.names()[1], 0, -1).unwrap();
    assert!(held.len() <= 1, "{held:?}");
    Some(held.first()?.1 as u64)
}

/// Waits until the lease ends later than at this instant, and returns when. None: nobody holds the permit any more.
fn renewed(con: &mut Connection, before: u64) -> Option<u64> {
    eventually("it is renewed or released", || match lease_end(con) {
        Some(end) if end <= before => None,
        end => Some(end),
    })
}

/// Checks that the last sign of life was before the end of the lease.
#[track_caller]
fn assert_within(last: u64, end: u64) {
    assert!(last < end, "{} ms past the lease", last - end);
}

#[track_caller]
fn assert_lost(output: &Output, says: &str) {
    assert_eq!((output.status.code(), &*said(output)), (Some(LOST), says));
}

fn silent(shell: Shell) -> Result<(), Failed> {
    let mut scene = Scene::new(shell);
    scene.go_silent();
    scene.ends_within_the_lease();
    Ok(())
}

fn stopped(shell: Shell) -> Result<(), Failed> {
    let mut scene = Scene::new(shell);
    let mut con = scene.home.server.connection();
    con.set_read_timeout(None)?;
    scene.home.server.pause();
    // The server sees this first when it goes on, before the calls that came while it stood still.
    let asked = std::thread::spawn(move || lease_end(&mut con));
    let last = scene.end();
    scene.home.server.resume();
    assert_within(last, asked.join().unwrap().unwrap());
    Ok(())
}

fn refused(shell: Shell) -> Result<(), Failed> {
    let mut scene = Scene::new(shell);
    let mut nobody = crate::server();
    nobody.kill();
    scene.proxy.lead_to(&nobody);
    scene.ends_within_the_lease();
    Ok(())
}

fn late_grant(shell: Shell) -> Result<(), Failed> {
    let delay = Duration::from_millis(1_200);
    let mut scene = Scene::after(shell, |proxy| proxy.delay_replies([delay]));
    scene.go_silent();
    scene.ends_within_the_lease();
    Ok(())
}

fn late_renewal(shell: Shell) -> Result<(), Failed> {
    let mut scene = Scene::new(shell);
    scene.wait_for_renewal();
    // The renewal that the server sees next is answered, late, and is the last one.
    scene.proxy.delay_replies([Duration::from_millis(500)]);
    scene.wait_for_renewal();
    scene.go_silent();
    scene.ends_within_the_lease();
    Ok(())
}

fn terminal(shell: Shell) -> Result<(), Failed> {
    let mut scene = Scene::new(shell);
    scene.go_silent();
    scene.log.has_lines(1);
    scene.signal("-HUP");
    scene.signal("-TSTP");
    eventually("the command is ended", || alive(&scene.group()).is_empty().then_some(()));
    scene.signal("-CONT");
    scene.ends_within_the_lease();
    Ok(())
}

fn renews(shell: Shell) -> Result<(), Failed> {
    let home = Home::new(shell);
    let mut command = home.with_permit(2, 60, "read line; exit 3");
    let mut child = command.env("LUAGATE_LEASE", "3").spawn()?;
    let mut con = home.server.connection();
    let mut end = eventually("it is granted", || lease_end(&mut con));
    for _ in 0..4 {
        end = renewed(&mut con, end).expect("it is held");
    }
    drop(child.stdin.take());
    assert_eq!(super::end_of(&mut child).code(), Some(3));
    Ok(())
}

fn revoked(shell: Shell) -> Result<(), Failed> {
    let home = Home::new(shell);
    let log = Log::new();
    let mut command = home.with_permit(2, 60, &stamps(&log));
    let mut child = command.env("LUAGATE_LEASE", "3").spawn()?;
    home.waits_for(1);
    log.has_lines(1);
    let id = home.semaphore.inspect()?.holders.remove(0).id;
    home.semaphore.revoke(&id)?;
    let output = super::output_of(&mut child);
    let says = "with-permit: the permit is lost: it was revoked, or the server lost its data\n";
    assert_lost(&output, says);
    assert_eq!(alive(&log.lines()[0]), [""; 0]);
    Ok(())
}
