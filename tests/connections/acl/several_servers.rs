//! Promise: on a cluster, with sentinels and with replicas, the guide's ACL line and the matching rows of its
//! table are enough. If a permission is missing, the error says so.

use super::everything::wait;
use super::{assert_refused, permit};
use crate::own;
use crate::support::cluster::Cluster;
use crate::support::eventually;
use crate::support::sentinel::{MASTER, Sentinels};

use luagate::Error;
use luagate::Gate;
use luagate::autocomplete::Recent;
use redis::Connection;
use std::time::Duration;

/// The permissions in one row of the guide's table, for a special setup.
fn row(needed_by: &str) -> Vec<String> {
    let guide = include_str!("../../../src/guide/production.md").replace("\\|", "|");
    let mut rows = guide.lines().filter(|line| line.starts_with("| `+") && line.contains(needed_by));
    let row = rows.next().expect("the guide has the row");
    assert_eq!(rows.next(), None);
    let words = row.split('`').filter(|word| word.starts_with(['+', '&']) || *word == "resetchannels");
    words.map(str::to_owned).collect()
}

/// Creates the guide's user with these additional permissions.
fn permit_also<'a>(con: &mut Connection, more: impl IntoIterator<Item = &'a String>) {
    permit(con, &[]);
    let mut command = redis::cmd("ACL");
    command.arg("SETUSER").arg("luagate");
    for permission in more {
        command.arg(permission);
    }
    command.exec(con).unwrap();
}

/// Asserts that nothing was refused to anyone, after all clients have disconnected.
#[track_caller]
fn assert_nothing_refused(con: &mut Connection) {
    eventually("all connections close", || {
        let list: String = redis::cmd("CLIENT").arg("LIST").query(con).unwrap();
        let is_there = |user| list.contains(user);
        (!["user=luagate", "user=finder"].into_iter().any(is_there)).then_some(())
    });
    let refused: Vec<redis::Value> = redis::cmd("ACL").arg("LOG").query(con).unwrap();
    assert!(refused.is_empty(), "{refused:?}");
}

/// Much longer than a pause of a busy machine.
const CONFIRMED: Duration = Duration::from_secs(5);

/// What a cluster needs in addition to one server: finding a node, following a redirection, confirmation by
/// replicas.
fn everything_on(cluster: &Cluster) -> Result<(), Error> {
    let url = format!("redis+cluster://luagate:password@{}", cluster.addresses()[0]);
    let gate = Gate::builder(&url).read_timeout(CONFIRMED * 2).min_replicas(1, CONFIRMED).open()?;
    let master = cluster.masters()[1];
    let mut admin = cluster.connection(cluster.master(cluster.slot("{all}")));
    wait(&gate.semaphore("all", 2), &mut admin)?;
    let name = cluster.name_on(master);
    let slot = cluster.slot(&format!("{{{name}}}"));
    let moving = cluster.begin_move(slot, cluster.masters()[2]);
    let asked = Recent::new(&gate, &name).add("bob");
    moving.move_keys(cluster);
    moving.end(cluster);
    Ok(asked.map(drop)?)
}

#[test]
fn everything_works_on_a_cluster_with_replicas_and_two_more_rows_of_the_guide() {
    let cluster = own!(Cluster::new());
    let more = [row("a cluster"), row("`min_replicas`")].concat();
    assert_eq!(more.len(), 3, "{more:?}");
    for (_, mut con) in cluster.connections() {
        permit_also(&mut con, &more);
    }
    everything_on(&cluster).unwrap();
    for (_, mut con) in cluster.connections() {
        assert_nothing_refused(&mut con);
    }
    for missing in &more {
        for (_, mut con) in cluster.connections() {
            permit_also(&mut con, more.iter().filter(|word| *word != missing));
        }
        let error = everything_on(&cluster).unwrap_err();
        assert_refused(&error, missing);
    }
}

/// Creates a user of the sentinels with this permission.
fn permit_finding(group: &Sentinels, permission: &[String]) {
    for (_, mut con) in group.sentinels.connections() {
        let mut command = redis::cmd("ACL");
        command.arg(&["SETUSER", "finder", "reset", "on", ">password"]);
        command.arg(permission).exec(&mut con).unwrap();
    }
}

#[test]
fn everything_works_with_sentinels_and_the_guides_rows_for_master_and_sentinels() {
    let group = own!(Sentinels::new());
    let (there, finds) = (row("the user of the master"), row("users of their own"));
    let confirmed = row("`min_replicas`");
    for (_, mut con) in group.connections() {
        permit_also(&mut con, there.iter().chain(&confirmed));
    }
    permit_finding(&group, &finds);
    let url = format!("redis+sentinel://luagate:password@{}/{MASTER}", group.sentinels.addresses().join(","));
    let everything = || -> Result<(), Error> {
        let gate = Gate::builder(&url)
            .sentinels_as("redis://finder:password@any")
            .read_timeout(CONFIRMED * 2)
            .min_replicas(1, CONFIRMED)
            .open()?;
        wait(&gate.semaphore("all", 2), &mut group.connection(group.master()))
    };
    everything().unwrap();
    assert_nothing_refused(&mut group.connection(group.master()));
    for (_, mut con) in group.sentinels.connections() {
        assert_nothing_refused(&mut con);
    }
    permit_finding(&group, &[]);
    assert_refused(&everything().unwrap_err(), &finds[0]);
    permit_finding(&group, &finds[..1]);
    for (_, mut con) in group.connections() {
        permit_also(&mut con, &confirmed);
    }
    everything().unwrap(); // works although no client may learn which server is the master, or that it changed
    for (_, mut con) in group.connections() {
        permit_also(&mut con, &there);
    }
    assert_refused(&everything().unwrap_err(), &confirmed[0]);
}
