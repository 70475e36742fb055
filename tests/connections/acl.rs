//! Promise: a user of the ACL with just the permissions of the guide can do everything; with one less, what is missing is
//! named.

mod everything;
mod line_of_the_guide;
#[cfg(any(feature = "cluster", feature = "sentinel"))]
mod several_servers;
mod waits;

use luagate::Error;
use luagate::errors::{Failure, FailureKind};
use redis::Connection;
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);

/// A message comes sooner than this; who hears none asks after 5 s.
const TOLD: Duration = Duration::from_secs(3);

/// The words of the guide's line.
fn line() -> Vec<&'static str> {
    let guide = include_str!("../../src/guide/production.md");
    let mut lines = guide.lines().filter(|line| line.starts_with("ACL SETUSER "));
    let line = lines.next().expect("the guide has the line");
    assert_eq!(lines.next(), None);
    line.split(' ').collect()
}

/// Makes the guide's user, without these words of the line.
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

/// The address of the guide's user at `url`.
fn as_user(url: &str) -> String {
    url.replace("redis://", "redis://luagate:password@")
}

/// Whether what was refused is `permission`, by its name.
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
    // Redis 6 names the command without the subcommand.
    let old = command.split('|').next().unwrap();
    let named = [permission, &format!("'{command}'"), &format!("'{old}'")].iter().any(|name| text.contains(name));
    assert!(named, "without {permission}: {text}");
}
