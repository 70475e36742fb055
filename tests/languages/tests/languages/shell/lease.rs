//! No process of the command outlives the lease, whatever the network does.

use super::{LOST, Log, Shell, Test, alive, stderr, with_permit};
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
    ("the_permit_is_renewed_while_the_command_runs", renews),
    ("a_revoked_permit_ends_the_command_and_is_reported", revoked),
];

const NOT_RENEWED: &str = "with-permit: the permit was lost: its lease could not be renewed in time\n";

/// A command that ignores TERM, with a child that does the same. Both log the time in ms until they are killed.
fn stamps(log: &Log) -> String {
    let file = log.path.display();
    format!(
        "echo $$ >{file}; trap '' TERM HUP
        stamp() {{ while :; do date +%s%3N >>{file}; sleep 0.02; done; }}
        stamp & stamp"
    )
}

/// `with-permit` runs such a command, and reaches the server through a proxy.
struct Proxied {
    scene: super::Scene,
    proxy: Proxy,
    /// A server that accepts connections and never replies.
    silent: Server,
    /// To the server.
    con: Connection,
    /// The last end of the lease that was read.
    lease_end: u64,
    log: Log,
    child: Child,
}

impl Proxied {
    fn new(shell: Shell) -> Proxied {
        Proxied::after(shell, |_| ())
    }

    /// Calls `first` with the proxy before the command starts.
    fn after(shell: Shell, first: impl FnOnce(&Proxy)) -> Proxied {
        let scene = super::Scene::new(shell);
        let proxy = Proxy::new(&scene.server);
        let mut silent = crate::server();
        silent.pause();
        let mut con = scene.server.connection();
        let log = Log::new();
        // From now on the server has the scripts, so each call has one reply.
        assert!(scene.with_permit(1, 60, ":").status().unwrap().success());
        first(&proxy);
        let mut command = with_permit(shell, &proxy.url, 1, 60, &stamps(&log));
        command.process_group(0).env("LUAGATE_LEASE", "3");
        let child = command.spawn().unwrap();
        let lease_end = eventually("the permit is granted", || lease_end(&mut con));
        Proxied { scene, proxy, silent, con, lease_end, log, child }
    }

    /// From now on connections are accepted, but there is no reply.
    fn go_silent(&self) {
        self.proxy.lead_to(&self.silent);
    }

    /// Waits until the permit is renewed. On a busy machine it may be released instead.
    fn wait_for_renewal(&mut self) {
        self.lease_end = renewed(&mut self.con, self.lease_end).unwrap_or(self.lease_end);
    }

    /// Sends a signal to all processes of `with-permit`, but not to the command.
    fn signal(&self, name: &str) {
        let group = format!("-{}", self.child.id());
        let sent = Command::new("kill").args([name, "--", &group]).status();
        assert!(sent.unwrap().success());
    }

    /// Waits for the end. The loss is reported, and no process is left. Returns the last time in the log.
    fn end(&mut self) -> u64 {
        let output = super::output_of(&mut self.child);
        assert_lost(&output, NOT_RENEWED);
        assert_eq!(alive(&self.group()), [""; 0]);
        self.log.lines().last().unwrap().parse().unwrap()
    }

    /// Waits for the end. The last time in the log is before the end of the lease.
    #[track_caller]
    fn ends_within_the_lease(&mut self) {
        let last = self.end();
        assert_within(last, lease_end(&mut self.con).unwrap_or(self.lease_end));
    }

    fn group(&self) -> String {
        self.log.lines().remove(0)
    }
}

/// The end of the lease of the only permit, in ms by the clock of this machine. None: it is free.
fn lease_end(con: &mut Connection) -> Option<u64> {
    let keys = Keys::semaphore("luagate", "batch").unwrap();
    let held: Vec<(String, f64)> = con.zrange_withscores(keys.names()[1], 0, -1).unwrap();
    assert!(held.len() <= 1, "{held:?}");
    Some(held.first()?.1 as u64)
}

/// Waits until the lease ends later than at this instant, and returns its new end. None: the permit is free.
fn renewed(con: &mut Connection, before: u64) -> Option<u64> {
    eventually("the permit is renewed or released", || match lease_end(con) {
        Some(end) if end <= before => None,
        end => Some(end),
    })
}

#[track_caller]
fn assert_within(last: u64, end: u64) {
    assert!(last < end, "{} ms past the lease", last - end);
}

#[track_caller]
fn assert_lost(output: &Output, says: &str) {
    assert_eq!((output.status.code(), &*stderr(output)), (Some(LOST), says));
}

fn silent(shell: Shell) -> Result<(), Failed> {
    let mut proxied = Proxied::new(shell);
    proxied.go_silent();
    proxied.ends_within_the_lease();
    Ok(())
}

fn stopped(shell: Shell) -> Result<(), Failed> {
    let mut proxied = Proxied::new(shell);
    let mut con = proxied.scene.server.connection();
    con.set_read_timeout(None)?;
    proxied.scene.server.pause();
    // The server runs this first when it continues, before the calls that arrived during the pause.
    let asked = std::thread::spawn(move || lease_end(&mut con));
    let last = proxied.end();
    proxied.scene.server.resume();
    assert_within(last, asked.join().unwrap().unwrap());
    Ok(())
}

fn refused(shell: Shell) -> Result<(), Failed> {
    let mut proxied = Proxied::new(shell);
    let mut down = crate::server();
    down.kill();
    proxied.proxy.lead_to(&down);
    proxied.ends_within_the_lease();
    Ok(())
}

fn late_grant(shell: Shell) -> Result<(), Failed> {
    let delay = Duration::from_millis(1_200);
    let mut proxied = Proxied::after(shell, |proxy| proxy.delay_replies([delay]));
    proxied.go_silent();
    proxied.ends_within_the_lease();
    Ok(())
}

fn late_renewal(shell: Shell) -> Result<(), Failed> {
    let mut proxied = Proxied::new(shell);
    proxied.wait_for_renewal();
    // The next renewal gets a late reply. It is the last one.
    proxied.proxy.delay_replies([Duration::from_millis(500)]);
    proxied.wait_for_renewal();
    proxied.go_silent();
    proxied.ends_within_the_lease();
    Ok(())
}

fn terminal(shell: Shell) -> Result<(), Failed> {
    let mut proxied = Proxied::new(shell);
    proxied.go_silent();
    proxied.log.has_lines(1);
    proxied.signal("-HUP");
    proxied.signal("-TSTP");
    eventually("the command has ended", || alive(&proxied.group()).is_empty().then_some(()));
    proxied.signal("-CONT");
    proxied.ends_within_the_lease();
    Ok(())
}

fn renews(shell: Shell) -> Result<(), Failed> {
    let scene = super::Scene::new(shell);
    let mut command = scene.with_permit(2, 60, "read line; exit 3");
    let mut child = command.env("LUAGATE_LEASE", "3").spawn()?;
    let mut con = scene.server.connection();
    let mut end = eventually("the permit is granted", || lease_end(&mut con));
    for _ in 0..4 {
        end = renewed(&mut con, end).expect("the permit is still held");
    }
    drop(child.stdin.take());
    assert_eq!(super::end_of(&mut child).code(), Some(3));
    Ok(())
}

fn revoked(shell: Shell) -> Result<(), Failed> {
    let scene = super::Scene::new(shell);
    let log = Log::new();
    let mut command = scene.with_permit(2, 60, &stamps(&log));
    let mut child = command.env("LUAGATE_LEASE", "3").spawn()?;
    scene.waits_for(1);
    log.has_lines(1);
    let id = scene.semaphore.inspect()?.holders.remove(0).id;
    scene.semaphore.revoke(&id)?;
    let output = super::output_of(&mut child);
    let says = "with-permit: the permit was lost: it was revoked, or the server lost its data\n";
    assert_lost(&output, says);
    assert_eq!(alive(&log.lines()[0]), [""; 0]);
    Ok(())
}
