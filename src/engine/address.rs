//! Parses an address: of one server, of the nodes of a cluster, or of a master behind sentinels.

use super::connector::Endpoint;
use super::tls::{self, Certificates};
use crate::error::{CallError, Invalid};
use crate::protocol::routing::HostPort;
use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo};
use std::net::Ipv6Addr;

#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "there is one, until the gate is open")]
pub(crate) enum Address {
    One(Endpoint),
    /// Some nodes of a cluster. One that can be reached is enough. `like`: the settings of connections to all nodes,
    /// except host and port.
    Cluster {
        nodes: Vec<HostPort>,
        like: Endpoint,
    },
    /// The sentinels, and the name of the master in their configuration. `ask`, `like`: the settings of connections to
    /// the sentinels and to the master, except host and port.
    Sentinel {
        sentinels: Vec<HostPort>,
        ask: Endpoint,
        master: String,
        like: Endpoint,
    },
}

impl Address {
    pub(crate) fn parse(url: &str) -> Result<Address, Invalid> {
        let url = trimmed(url)?;
        let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
        match scheme {
            "redis+cluster" | "rediss+cluster" => Address::of_cluster(plain(scheme), rest),
            "redis+sentinel" | "rediss+sentinel" => Address::of_sentinel(plain(scheme), rest),
            _ => Ok(Address::One(endpoint_of(url, ONE)?)),
        }
    }

    /// `[user:password@]host[:port],host[:port]`
    fn of_cluster(scheme: &str, rest: &str) -> Result<Address, Invalid> {
        let (login, hosts, path) = parts(rest, CLUSTER)?;
        let like = endpoint_of(&format!("{scheme}://{login}localhost/{path}"), CLUSTER)?;
        if like.info.redis_settings().db() != 0 {
            let why = "the database is not 0. Accepted: no database, since a cluster has only the database 0";
            return Err(Invalid::new("url", why));
        }
        Ok(Address::Cluster { nodes: host_ports(scheme, hosts, 6379, CLUSTER)?, like })
    }

    /// `[user:password@]sentinel[:port],sentinel[:port]/master[/db]`; user and password are for the master.
    fn of_sentinel(scheme: &str, rest: &str) -> Result<Address, Invalid> {
        let (login, hosts, path) = parts(rest, SENTINEL)?;
        let (master, db) = path.split_once('/').unwrap_or((path, "0"));
        if master.is_empty() {
            let why = format!("the name of the master is missing after the hosts. Accepted: {SENTINEL}");
            return Err(Invalid::new("url", why));
        }
        let like = endpoint_of(&format!("{scheme}://{login}localhost/{db}"), SENTINEL)?;
        let ask = endpoint_of(&format!("{scheme}://localhost"), SENTINEL)?;
        let sentinels = host_ports(scheme, hosts, 26379, SENTINEL)?;
        Ok(Address::Sentinel { sentinels, ask, master: master.to_owned(), like })
    }

    /// The hosts that it names: none for a socket in the file system.
    #[cfg(feature = "__proof")]
    pub(crate) fn hosts(self) -> Vec<HostPort> {
        match self {
            Address::One(endpoint) => match endpoint.info.addr() {
                ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                    vec![(host.clone(), *port)]
                }
                _ => Vec::new(),
            },
            Address::Cluster { nodes: hosts, .. } | Address::Sentinel { sentinels: hosts, .. } => hosts,
        }
    }

    /// The same address, with these settings of connections to the sentinels.
    pub(crate) fn asking_as(self, url: &str) -> Result<Address, Invalid> {
        match self {
            Address::Sentinel { sentinels, master, like, .. } => {
                let ask = endpoint_of(trimmed(url)?, ONE)?;
                Ok(Address::Sentinel { sentinels, ask, master, like })
            }
            _ => {
                let why = "the address names no sentinels. Accepted: only with redis+sentinel://";
                Err(Invalid::new("sentinels_as", why))
            }
        }
    }

    /// The same address with the settings of TLS. Reads the certificates of the system, if they are used.
    pub(crate) fn with_certificates(mut self, certificates: &Certificates) -> Result<Address, CallError> {
        let endpoints = match &mut self {
            Address::One(endpoint) | Address::Cluster { like: endpoint, .. } => vec![endpoint],
            Address::Sentinel { ask, like, .. } => vec![ask, like],
        };
        let mut endpoints: Vec<_> = endpoints.into_iter().filter(|endpoint| tls::is_used(&endpoint.info)).collect();
        if certificates.are_given() && endpoints.is_empty() {
            let why = "certificates are given, but no address uses TLS. Accepted: rediss:// with certificates";
            return Err(Invalid::new("url", why).into());
        }
        let tls = tls::config_for(&endpoints, certificates)?;
        endpoints.iter_mut().for_each(|endpoint| endpoint.tls = tls.clone());
        Ok(self)
    }
}

/// The scheme without `+cluster` or `+sentinel`.
fn plain(scheme: &str) -> &str {
    scheme.split('+').next().unwrap_or(scheme)
}

fn has_port(host: &str) -> bool {
    // The colons of `[::1]` do not begin a port.
    host.rsplit(']').next().is_some_and(|end| end.contains(':'))
}

/// Splits into `user:password@` or nothing, `host,host`, and the text after the first slash.
fn parts<'a>(rest: &'a str, form: &str) -> Result<(&'a str, &'a str, &'a str), Invalid> {
    if let Some(why) = broken_by_password(rest) {
        return Err(Invalid::new("url", format!("{why}. Accepted: {form}")));
    }
    let (authority, path) = split(rest, &['/', '?', '#']);
    let login = authority.rfind('@').map_or(0, |at| at + 1);
    let (login, hosts) = authority.split_at_checked(login).unwrap_or(("", authority));
    Ok((login, hosts, path.strip_prefix('/').unwrap_or(path)))
}

/// Parses `host[:port],host[:port]`.
fn host_ports(scheme: &str, hosts: &str, default_port: u16, form: &str) -> Result<Vec<HostPort>, Invalid> {
    let hosts: Vec<&str> = hosts.split(',').collect();
    let parse = |(index, host): (usize, &&str)| {
        let port = if has_port(host) { String::new() } else { format!(":{default_port}") };
        let info = endpoint_of(&format!("{scheme}://{host}{port}"), form).map_err(|invalid| match hosts.len() {
            1 => invalid,
            count => invalid.within(&format!("address {} of {count}", index + 1)),
        })?;
        match info.address() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => Ok((host.clone(), *port)),
            _ => Err(Invalid::new("url", format!("the host is missing. Accepted: {form}"))), // no TCP scheme
        }
    };
    hosts.iter().enumerate().map(parse).collect()
}

/// Parses one URL. The error does not contain its text, which may contain a password.
fn endpoint_of(url: &str, form: &str) -> Result<Endpoint, Invalid> {
    let is_secure = ["rediss:", "valkeys:"].iter().any(|s| url.starts_with(s));
    if is_secure && !cfg!(feature = "tls") {
        // The program may use `redis` with TLS, which then accepts the address.
        let why = "luagate was compiled without its feature `tls`. Enable the feature `tls` in Cargo.toml";
        return Err(Invalid::new("url", why));
    }
    let parsed = url.into_connection_info().ok().filter(|info| !is_cut_by_password(url, info));
    parsed.map(Endpoint::new).ok_or_else(|| Invalid::new("url", wrong_part(url, form)))
}

/// The URL without white space around it, as from a file that ends with a line. Control characters in it are refused, since the
/// parser of `redis` would remove some of them without a word.
fn trimmed(url: &str) -> Result<&str, Invalid> {
    let url = url.trim();
    if url.contains(char::is_control) {
        return Err(Invalid::new("url", unknown_scheme("it contains a control character")));
    }
    Ok(url)
}

/// Whether a piece of an unescaped password is read as the port: `redis://user:12?3@host` would connect to `user`, port 12.
fn is_cut_by_password(url: &str, info: &ConnectionInfo) -> bool {
    let (_, rest) = url.split_once("://").unwrap_or_default();
    !matches!(info.addr(), ConnectionAddr::Unix(_)) && broken_by_password(rest).is_some()
}

const ONE: &str = "redis://[user:password@]host[:port][/db], or rediss:// with TLS";
const UNIX: &str = "unix:///path[?db=number&user=name&pass=password]";
const CLUSTER: &str = "redis+cluster://[user:password@]host[:port],host[:port]";
const SENTINEL: &str = "redis+sentinel://[user:password@]host[:port],host[:port]/master[/db]";

const TCP: [&str; 4] = ["redis", "rediss", "valkey", "valkeys"];
const SOCKETS: [&str; 3] = ["unix", "redis+unix", "valkey+unix"];

/// The message for an unescaped password that ends its part of the URL.
const PASSWORD: &str = "the password contains a character to escape. Write / as %2F, ? as %3F, # as %23 and @ as %40";

/// Names the wrong part of the URL of one server, and the accepted form. `form`: that of such a URL. The message contains
/// no piece of the URL, since an unescaped password may be anywhere in it.
fn wrong_part(url: &str, form: &str) -> String {
    let (scheme, rest) = url.split_once("://").unzip();
    let rest = rest.unwrap_or_default();
    match scheme.map(str::to_ascii_lowercase).as_deref() {
        Some(scheme) if TCP.contains(&scheme) => format!("{}. Accepted: {form}", of_tcp(rest)),
        Some(scheme) if SOCKETS.contains(&scheme) => format!("{}. Accepted: {UNIX}", of_socket(rest)),
        Some(_) => unknown_scheme("the scheme is unknown"),
        None => unknown_scheme("the scheme is missing"),
    }
}

fn unknown_scheme(what: &str) -> String {
    format!("{what}. Accepted: {ONE}, {UNIX}, {CLUSTER} or {SENTINEL}")
}

/// Whether an unescaped password seems to end the part with the hosts.
fn broken_by_password(rest: &str) -> Option<&'static str> {
    let (_, others) = split(rest, &['/', '?', '#']);
    others.contains('@').then_some(PASSWORD)
}

fn of_tcp(rest: &str) -> &'static str {
    if let Some(why) = broken_by_password(rest) {
        return why;
    }
    let (authority, others) = split(rest, &['/', '?', '#']);
    let address = authority.rsplit_once('@').map_or(authority, |(_, address)| address);
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
    if !port.is_empty() && port != ":" && port.strip_prefix(':').is_none_or(|port| port.parse::<u16>().is_err()) {
        return "the port is not a number from 0 to 65535";
    }
    if ["0.0.0.0", "::"].contains(&host) {
        return "the host is the wildcard address, which accepts no connections";
    }
    if !path.is_empty() && path.parse::<i64>().is_err() {
        return "the database is not a number";
    }
    of_options(options).unwrap_or("the host, the user or the password contains a character that is not permitted")
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn white_space_around_a_url_is_ignored() {
        let address = Address::parse(" redis+cluster://a,b\r\n").unwrap();
        let Address::Cluster { nodes, .. } = address else { panic!("no cluster") };
        assert_eq!(nodes, [("a".to_owned(), 6379), ("b".to_owned(), 6379)]);
    }

    #[test]
    fn the_login_of_a_cluster_url_is_for_every_node() {
        let address = Address::parse("redis+cluster://me:p%40ss@a:7001,[::1]").unwrap();
        let Address::Cluster { nodes, like } = address else { panic!("no cluster") };
        assert_eq!(nodes, [("a".to_owned(), 7001), ("::1".to_owned(), 6379)]);
        assert_eq!(like.info.redis_settings().username(), Some("me"));
        assert_eq!(like.info.redis_settings().password(), Some("p@ss"));
    }

    #[test]
    fn the_login_of_a_sentinel_url_is_the_masters() {
        let address = Address::parse("redis+sentinel://:secret@a,b:5000,[::1]/orders/3").unwrap();
        let Address::Sentinel { sentinels, ask, master, like } = address else { panic!("no sentinels") };
        assert_eq!(sentinels, [("a".to_owned(), 26379), ("b".to_owned(), 5000), ("::1".to_owned(), 26379)]);
        assert_eq!(ask.info.redis_settings().password(), None);
        assert_eq!(master, "orders");
        assert_eq!(like.info.redis_settings().password(), Some("secret"));
        assert_eq!(like.info.redis_settings().db(), 3);
    }
}
