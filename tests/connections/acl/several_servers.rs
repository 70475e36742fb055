//! Promise: on a cluster, with sentinels and with replicas, the permissions of the guide's line and of its rows for them are
//! enough, and a missing one is named.

use super::everything::wait;
use super::{assert_names, permit};
use crate::own;
#[cfg(feature = "cluster")]
use crate::support::cluster::Cluster;
use crate::support::eventually;
#[cfg(feature = "sentinel")]
use crate::support::sentinel::{MASTER, Sentinels};

use luagate::Error;
#[cfg(feature = "cluster")]
use luagate::Gate;
#[cfg(feature = "sentinel")]
use luagate::GateBuilder;
#[cfg(feature = "cluster")]
use luagate::autocomplete::Recent;
use redis::Connection;
use std::time::Duration;

/// The permissions of a row of the guide's table, which only some need.
fn row(needed_by: &str) -> Vec<String> {
    let guide = include_str!("../../../src/guide/production.md").replace("\\|", "|");
    let mut rows = guide.lines().filter(|line| line.starts_with("| `+") && line.contains(needed_by));
    let row = rows.next().expect("the guide has the row");
    assert_eq!(rows.next(), None);
    let words = row.split('`').filter(|word| word.starts_with(['+', '&']) || *word == "resetchannels");
    words.map(str::to_owned).collect()
}

/// The guide's user with these permissions, too.
fn permit_also<'a>(con: &mut Connection, more: impl IntoIterator<Item = &'a String>) {
    permit(con, &[]);
    let mut command = redis::cmd("ACL");
    command.arg("SETUSER").arg("luagate");
    for permission in more {
        command.arg(permission);
    }
    command.exec(con).unwrap();
}

/// Once nobody is connected any more, nobody has been refused anything.
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

/// Long beside a pause of a busy machine.
const CONFIRMED: Duration = Duration::from_secs(5);

/// What a cluster needs beyond one server: to find a node, to be sent to another one, and confirmation by replicas.
#[cfg(feature = "cluster")]
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

#[cfg(feature = "cluster")]
#[test]
fn on_a_cluster_with_replicas_two_rows_of_the_guide_are_added() {
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
        assert_names(&error, missing);
    }
}

/// Makes a user of the sentinels with this permission.
#[cfg(feature = "sentinel")]
fn permit_finding(group: &Sentinels, permission: &[String]) {
    for (_, mut con) in group.sentinels.connections() {
        let mut command = redis::cmd("ACL");
        command.arg(&["SETUSER", "finder", "reset", "on", ">password"]);
        command.arg(permission).exec(&mut con).unwrap();
    }
}

#[cfg(feature = "sentinel")]
#[test]
fn with_sentinels_a_row_of_the_guide_is_added_and_there_is_one_for_them() {
    let group = own!(Sentinels::new());
    let (there, finds) = (row("the user of the master"), row("users of their own"));
    let confirmed = row("`min_replicas`");
    for (_, mut con) in group.connections() {
        permit_also(&mut con, there.iter().chain(&confirmed));
    }
    permit_finding(&group, &finds);
    let urls = group.sentinels.addresses().into_iter();
    let urls: Vec<String> = urls.map(|address| format!("redis://finder:password@{address}")).collect();
    let everything = || -> Result<(), Error> {
        let gate = GateBuilder::sentinel(&urls, MASTER, "redis://luagate:password@any")
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
    assert_names(&everything().unwrap_err(), &finds[0]);
    permit_finding(&group, &finds[..1]);
    for (_, mut con) in group.connections() {
        permit_also(&mut con, &confirmed);
    }
    everything().unwrap(); // though nobody says who is the master, or that another one is
    for (_, mut con) in group.connections() {
        permit_also(&mut con, &there);
    }
    assert_names(&everything().unwrap_err(), &confirmed[0]);
}
