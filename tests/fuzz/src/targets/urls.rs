//! URLs of servers. Promise: a refused one gets an error that says what is accepted and shows no piece of it, since a password may
//! be anywhere. Only the name of an unknown parameter is shown, if no password can be before it. An accepted one names the same hosts
//! after it was written and read again.

use super::{text, texts};
use luagate::__proof::hosts;

/// A password in the seeds. No error has this word.
const SECRET: &str = "hunter2";

pub fn run(data: &[u8]) {
    let url = text(data);
    let found = match hosts(&url) {
        Ok(found) => found,
        Err(invalid) => {
            let shown = format!("{invalid} {invalid:?}");
            let shown = without_parameter(&url, shown);
            assert!(shown.contains("Accepted: ") && !shown.contains(SECRET), "{shown}");
            return;
        }
    };
    let (scheme, _) = url.trim().split_once("://").unwrap_or_default();
    let scheme = scheme.to_ascii_lowercase();
    let Some(plain) =
        ["redis", "rediss", "valkey", "valkeys"].into_iter().find(|plain| scheme.split('+').next() == Some(plain))
    else {
        return assert!(found.is_empty(), "{scheme}: {found:?}");
    };
    let bracketed = |(host, port): &(String, u16)| {
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    };
    for host in &found {
        assert_eq!(hosts(&format!("{plain}://{}", bracketed(host))).ok(), Some(vec![host.clone()]));
    }
    if scheme.ends_with("+cluster") {
        let list = found.iter().map(bracketed).collect::<Vec<_>>().join(",");
        assert_eq!(hosts(&format!("{scheme}://{list}")).ok(), Some(found));
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
