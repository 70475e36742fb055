//! A server whose host name is looked up slowly.

use super::tool::{Run, Running, Shared, Text, luagate, words};
use crate::support::resolver::{NAME, Resolver};
use crate::support::{Server, eventually, kill_connections, skip_since};
use luagate::inspection::Inspection;
use std::process::Command;
use std::time::Duration;

/// Longer than the default timeouts, and shorter than a lease.
const SLOW: Duration = Duration::from_secs(3);

/// The command, which reaches the server by a name.
fn by_name(server: &Server, resolver: &Resolver) -> Command {
    let mut command = luagate(server);
    command.env("LUAGATE_URL", server.url.replace("127.0.0.1", NAME)).envs(resolver.variables());
    command
}

fn inspect(server: &Server) -> Inspection {
    server.gate().mutex("slow").inspect().unwrap()
}

#[test]
fn a_command_runs_and_keeps_its_permit_although_each_look_up_takes_longer_than_the_timeouts() {
    let server = crate::own!(Server::private_tcp(&[]));
    let resolver = match Resolver::new() {
        Ok(resolver) => resolver,
        Err(why) => return skip_since(why),
    };
    resolver.takes(SLOW);
    let shared = Shared::new();
    let mut run = by_name(&server, &resolver);
    run.args(words("run --lease 12s slow -- sh -c")).arg("echo >\"$0\"; read line").arg(shared.path("runs"));
    let mut run: Running = run.stdin(std::process::Stdio::piped()).started();
    shared.text("runs");
    kill_connections(&mut server.connection(), "normal");
    let left = |server: &Server| inspect(server).holders[0].remaining.unwrap();
    let first = left(&server);
    eventually("the lease is renewed", || (left(&server) > first).then_some(()));
    run.close_input();
    let ended = run.output();
    assert_eq!((ended.code(), ended.err()), (1, String::new()), "of `read`, whose input has ended");
    eventually("the permit is released", || (inspect(&server).in_use == 0).then_some(()));
}
