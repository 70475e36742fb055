//! URLs of servers. Promise: a refused one gets an error that says what is accepted and shows no piece of it,
//! since a password may be anywhere. Only the name of an unknown parameter is shown, if no password can be
//! before it.

use super::{text, texts};
use luagate::Gate;

/// A password in the seeds. No error has this word.
const SECRET: &str = "hunter2";

pub fn run(data: &[u8]) {
    let url = text(data);
    let shown = without_parameter(&url, format!("{:?}", Gate::builder(&url)));
    if shown.contains("address: Err(") {
        assert!(shown.contains("Accepted: ") && !shown.contains(SECRET), "{shown}");
    }
}

/// An error without the name of the unknown parameter, which is the first one that is not known.
fn without_parameter(url: &str, shown: String) -> String {
    let names = url.split(['?', '&']).skip(1).filter_map(|pair| pair.split('=').next());
    let before_password = names.take_while(|name| !["pass", "password"].contains(name));
    before_password.fold(shown, |shown, name| shown.replace(&format!("the parameter {name} is unknown"), ""))
}

pub fn seeds() -> Vec<Vec<u8>> {
    texts(&[
        "redis://user:hunter2@host:6379/3",
        "rediss://:hunter2@[::1]:6380/0?protocol=resp3#insecure",
        "unix:///tmp/socket?db=1&user=me&pass=hunter2",
        "redis://me@host/3?db=3&user=me&password=hunter2",
        "redis://host?timeout=5&password=hunter2",
        "redis+sentinel://a,b/orders?db=3&password=hunter2",
        "redis+unix:///tmp/socket",
        "redis+cluster://me:p%40hunter2@a:7001,[::1],c",
        "redis+sentinel://:hunter2@a,b:5000/orders/3",
        "redis://user:12?hunter2@host",
        "redis://user:a/hunter2@host/",
        "valkey://host/?pass=hunter2",
        "http://user:hunter2@host/",
        "user:hunter2@host",
    ])
}
