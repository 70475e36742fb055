//! Promise: no span and no event contains a password or an id.

use crate::own;
use crate::recorder::{self, record};
use crate::support::{Server, eventually, kill_connections};
use crate::{MOMENT, reported};

use luagate::{Gate, Lease};
use std::time::Duration;

#[test]
fn no_span_or_event_contains_a_password_or_an_id() {
    record();
    let mut server = own!(Server::private(&[]));
    let mut con = server.connection();
    let mut user = redis::cmd("ACL");
    user.arg("SETUSER").arg("market").arg("on").arg(">pa55word");
    user.arg("~*").arg("&*").arg("+@all").exec(&mut con).unwrap();
    let url = server.url.replace("unix://", "redis+unix://");
    let gate = Gate::builder(&format!("{url}?user=market&pass=pa55word"));
    let gate = gate.prefix(&server.prefix).open().unwrap();
    let own = gate.semaphore("kept-quiet", 9).id("customer-17");
    let permit = own.lease(Lease::renewed(Duration::from_secs(3))).acquire().unwrap();
    permit.refresh().unwrap();
    kill_connections(&mut con, "normal");
    permit.refresh().unwrap();
    server.kill();
    assert!(permit.refresh().is_err());
    eventually("the permit is lost", || permit.is_lost().then_some(()));
    assert!(gate.mutexes(["kept-quiet"]).acquire_timeout(MOMENT).is_err());
    drop(permit);
    assert!(reported("kept-quiet").len() >= 6);
    let all = format!("{:?}", recorder::all());
    assert!(!all.contains("pa55word") && !all.contains("customer-17"));
}
