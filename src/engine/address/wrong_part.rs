//! Finds the wrong part of a URL that was refused. The message contains no piece of the URL, since an unescaped
//! password may be anywhere in it.

use std::net::Ipv6Addr;

pub(super) const ONE: &str = "redis://[user:password@]host[:port][/db], or rediss:// with TLS";
pub(super) const UNIX: &str = "unix:///path[?db=number&user=name&pass=password]";
pub(super) const CLUSTER: &str = "redis+cluster://[user:password@]host[:port],host[:port]";
pub(super) const SENTINEL: &str = "redis+sentinel://[user:password@]host[:port],host[:port]/master[/db]";

const TCP: [&str; 4] = ["redis", "rediss", "valkey", "valkeys"];
const SOCKETS: [&str; 3] = ["unix", "redis+unix", "valkey+unix"];

/// The message for an unescaped password that ends its part of the URL.
const PASSWORD: &str = "the password contains a character to escape. Write / as %2F, ? as %3F, # as %23 and @ as %40";

/// Names the wrong part of the URL of one server, and the accepted form. `form`: that of such a URL.
pub(super) fn why(url: &str, form: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return unknown_scheme("the scheme is missing");
    };
    let scheme = scheme.to_ascii_lowercase();
    if TCP.contains(&scheme.as_str()) {
        return format!("{}. Accepted: {form}", of_tcp(rest));
    }
    if SOCKETS.contains(&scheme.as_str()) {
        return format!("{}. Accepted: {UNIX}", of_socket(rest));
    }
    unknown_scheme("the scheme is unknown")
}

fn unknown_scheme(what: &str) -> String {
    format!("{what}. Accepted: {ONE}, {UNIX}, {CLUSTER} or {SENTINEL}")
}

/// Whether an unescaped password seems to end the part with the hosts.
pub(super) fn password(rest: &str) -> Option<&'static str> {
    let (_, others) = split(rest, &['/', '?', '#']);
    others.contains('@').then_some(PASSWORD)
}

fn of_tcp(rest: &str) -> &'static str {
    if let Some(why) = password(rest) {
        return why;
    }
    let (authority, others) = split(rest, &['/', '?', '#']);
    let (login, address) = authority.rsplit_once('@').unwrap_or(("", authority));
    let (host, port) = match address.strip_prefix('[').map(|a| a.split_once(']')) {
        Some(Some((host, port))) if host.parse::<Ipv6Addr>().is_ok() => (host, port),
        Some(_) => return "the host has a bracket but is not an IPv6 address in brackets",
        None => split(address, &[':']),
    };
    let (path, options) = split(others, &['?', '#']);
    let path = path.trim_matches('/');
    if host.is_empty() {
        return "the host is missing";
    }
    if !port.is_empty() && port != ":" && port_of(port).is_none() {
        return "the port is not a number from 0 to 65535";
    }
    if ["0.0.0.0", "::"].contains(&host) {
        return "the host is the wildcard address, which accepts no connections";
    }
    if !path.is_empty() && path.parse::<i64>().is_err() {
        return "the database is not a number";
    }
    if !is_utf_8(login) {
        return "the user or the password is not UTF-8 after unescaping";
    }
    of_options(options).unwrap_or("the host contains a character that is not permitted")
}

fn of_socket(rest: &str) -> &'static str {
    let (path, options) = split(rest, &['?', '#']);
    if !path.starts_with('/') {
        return "the path of the socket is missing or relative. Write three slashes before it";
    }
    let databases = options.trim_start_matches('?').split(['&', '#']);
    let mut databases = databases.filter_map(|option| option.strip_prefix("db="));
    if databases.any(|db| db.parse::<i64>().is_err()) {
        return "the database is not a number";
    }
    of_options(options).unwrap_or("the path of the socket cannot be used")
}

/// The error in the part after the path.
fn of_options(options: &str) -> Option<&'static str> {
    let (query, fragment) = split(options, &['#']);
    if !["", "#insecure"].contains(&fragment) {
        return Some("the fragment is not #insecure");
    }
    query.contains("protocol=").then_some("the protocol is not 2, 3, resp2 or resp3")
}

/// Splits before the first of these characters. The second part begins with it.
fn split<'a>(text: &'a str, at: &[char]) -> (&'a str, &'a str) {
    text.split_at_checked(text.find(at).unwrap_or(text.len())).unwrap_or((text, ""))
}

/// The number after the colon.
fn port_of(port: &str) -> Option<u16> {
    port.strip_prefix(':')?.parse().ok()
}

/// Whether the escaped bytes of a login are UTF-8.
fn is_utf_8(login: &str) -> bool {
    let mut bytes = Vec::new();
    let mut rest = login.as_bytes();
    while let [first, more @ ..] = rest {
        let digits = more.get(..2).and_then(|two| str::from_utf8(two).ok());
        let escaped = digits.and_then(|two| u8::from_str_radix(two, 16).ok());
        match (first, escaped) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = more.get(2..).unwrap_or_default();
            }
            _ => {
                bytes.push(*first);
                rest = more;
            }
        }
    }
    str::from_utf8(&bytes).is_ok()
}
