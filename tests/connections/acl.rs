//! Promise: an ACL user with exactly the permissions of the guide can run every operation. If one is missing, the error
//! names it.

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

/// Asserts that the error names the missing `permission`.
#[track_caller]
fn assert_names(error: &Error, permission: &str) {
    let Error::Failed(failure) = error else { panic!("without {permission}: {error:?}") };
    assert_failure_names(failure, permission);
}

#[track_caller]
fn assert_failure_names(failure: &Failure, permission: &str) {
    assert_eq!(failure.kind(), FailureKind::Permission, "{failure}");
    let text = failure.to_string();
    let command = permission.trim_start_matches('+');
    // Redis 6 names the command without its subcommand.
    let old = command.split('|').next().unwrap();
    let named = [permission, &format!("'{command}'"), &format!("'{old}'")].iter().any(|name| text.contains(name));
    assert!(named, "without {permission}: {text}");
}
