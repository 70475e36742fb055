//! Promise: an ACL user with exactly the permissions of the guide can run every operation. If one is missing,
//! the error says so; `luagate doctor` names it.

mod everything;
mod line_of_the_guide;
mod several_servers;
mod waits;

use luagate::Error;
use luagate::errors::{Failure, FailureKind};
use redis::Connection;
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);

/// Messages arrive within this time. A waiter that receives none asks again after 5 s.
const REPORTED: Duration = Duration::from_secs(3);

/// The words of the ACL line in the guide.
fn line() -> Vec<&'static str> {
    let guide = include_str!("../../src/guide/production.md");
    let mut lines = guide.lines().filter(|line| line.starts_with("ACL SETUSER "));
    let line = lines.next().expect("the guide has the line");
    assert_eq!(lines.next(), None);
    line.split(' ').collect()
}

/// Creates the guide's user, without the words in `without`.
fn permit(con: &mut Connection, without: &[&str]) {
    let line = line();
    let mut command = redis::cmd(line[0]);
    for word in line.iter().skip(1) {
        if !without.contains(word) {
            command.arg(word);
        }
    }
    command.exec(con).unwrap();
}

/// `url` with the guide's user.
fn as_user(url: &str) -> String {
    url.replace("redis://", "redis://luagate:password@")
}

/// Asserts that the call failed for lack of this permission.
#[track_caller]
fn assert_refused(error: &Error, permission: &str) {
    let Error::Failed(failure) = error else { panic!("without {permission}: {error:?}") };
    assert_is_refusal(failure, permission);
}

#[track_caller]
fn assert_is_refusal(failure: &Failure, permission: &str) {
    assert_eq!(failure.kind(), FailureKind::Permission, "without {permission}: {failure}");
}
