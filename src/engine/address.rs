//! Parses an address: of one server, of the nodes of a cluster, or of a master behind sentinels.

mod parameters;

use super::credentials::Source;
use super::endpoint::Endpoint;
use super::tls::{self, Certificates};
use luagate_core::failure::CallError;
use luagate_core::invalid::Invalid;
use luagate_core::routing::HostPort;
use parameters::Parameters;
use redis::{ConnectionAddr, IntoConnectionInfo};
use std::net::Ipv6Addr;

#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "there is one, until the gate is open")]
pub(crate) enum Address {
    One(Endpoint),
    /// Some nodes of a cluster. One that can be reached is enough. `like`: the settings of connections to all
    /// nodes, except host and port.
    Cluster {
        nodes: Vec<HostPort>,
        like: Endpoint,
    },
    /// The sentinels, and the name of the master in their configuration. `ask`, `like`: the settings of
    /// connections to the sentinels and to the master, except host and port.
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

    /// `[user:password@]host[:port],host[:port][?parameters]`
    fn of_cluster(scheme: &str, rest: &str) -> Result<Address, Invalid> {
        let (login, hosts, path) = parts(rest, CLUSTER)?;
        let like = endpoint_of(&format!("{scheme}://{login}localhost/{path}"), CLUSTER)?;
        if like.info.redis_settings().db() != 0 {
            let why = "the database is not 0. Accepted: no database, since a cluster has only the database 0";
            return Err(Invalid::new("url", why));
        }
        Ok(Address::Cluster { nodes: host_ports(scheme, hosts, 6379, CLUSTER)?, like })
    }

    /// `[user:password@]sentinel[:port],sentinel[:port]/master[/db][?parameters]`; user and password are for
    /// the master.
    fn of_sentinel(scheme: &str, rest: &str) -> Result<Address, Invalid> {
        let (login, hosts, path) = parts(rest, SENTINEL)?;
        let (path, parameters) = split(path, &['?', '#']);
        let (master, db) = path.split_once('/').unwrap_or((path, ""));
        if master.is_empty() {
            let why = format!("the name of the master is missing after the hosts. Accepted: {SENTINEL}");
            return Err(Invalid::new("url", why));
        }
        let like = endpoint_of(&format!("{scheme}://{login}localhost/{db}{parameters}"), SENTINEL)?;
        let ask = endpoint_of(&format!("{scheme}://localhost"), SENTINEL)?;
        let sentinels = host_ports(scheme, hosts, 26379, SENTINEL)?;
        Ok(Address::Sentinel { sentinels, ask, master: master.to_owned(), like })
    }

    /// The hosts that it names: none for a socket in the file system.
    #[cfg(test)]
    fn hosts(self) -> Vec<HostPort> {
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

    /// The same address, which asks `source` for the password of each connection, but not of those to the
    /// sentinels.
    pub(crate) fn with_credentials(mut self, source: &Source) -> Result<Address, Invalid> {
        let (Address::One(endpoint)
        | Address::Cluster { like: endpoint, .. }
        | Address::Sentinel { like: endpoint, .. }) = &mut self;
        if endpoint.info.redis_settings().password().is_some() {
            let why = "the URL has a password too. Accepted: a URL without a password, or no function for credentials";
            return Err(Invalid::new("credentials", why));
        }
        endpoint.credentials = Some(source.clone());
        Ok(self)
    }

    /// The same address with the settings of TLS. Reads the certificates of the system, if they are used.
    pub(crate) fn with_certificates(mut self, certificates: &Certificates) -> Result<Address, CallError> {
        let endpoints = match &mut self {
            Address::One(endpoint) | Address::Cluster { like: endpoint, .. } => vec![endpoint],
            Address::Sentinel { ask, like, .. } => vec![ask, like],
        };
        let mut endpoints: Vec<_> =
            endpoints.into_iter().filter(|endpoint| tls::is_used(&endpoint.info)).collect();
        if certificates.are_given() && endpoints.is_empty() {
            let why =
                "certificates are given, but no address uses TLS. Accepted: rediss:// with certificates";
            return Err(Invalid::new("url", why).into());
        }
        let addresses: Vec<_> = endpoints.iter().map(|endpoint| endpoint.address()).collect();
        let tls = tls::config_for(&addresses, certificates)?;
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
        let info =
            endpoint_of(&format!("{scheme}://{host}{port}"), form).map_err(|invalid| match hosts.len() {
                1 => invalid,
                count => invalid.within(&format!("address {} of {count}", index + 1)),
            })?;
        match info.address() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                Ok((host.clone(), *port))
            }
            _ => Err(Invalid::new("url", format!("the host is missing. Accepted: {form}"))), // no TCP scheme
        }
    };
    hosts.iter().enumerate().map(parse).collect()
}

/// Parses one URL. The error does not contain its text, which may contain a password.
fn endpoint_of(url: &str, form: &str) -> Result<Endpoint, Invalid> {
    let invalid = |why: String| Invalid::new("url", why);
    let wrong = || invalid(wrong_part(url, form));
    let mut parsed = redis::parse_redis_url(url).ok_or_else(wrong)?;
    let is_secure = ["rediss", "valkeys"].contains(&parsed.scheme());
    if is_secure && !cfg!(feature = "tls") {
        // The program may use `redis` with TLS, which then accepts the address.
        let why = "luagate was compiled without its feature `tls`. Enable the feature `tls` in Cargo.toml";
        return Err(invalid(why.to_owned()));
    }
    let is_socket = SOCKETS.contains(&parsed.scheme());
    let (_, rest) = url.split_once("://").unwrap_or_default();
    // A piece of an unescaped password may be read as the port: `redis://user:12?3@host` would connect to
    // `user`, port 12.
    if !is_socket && broken_by_password(rest).is_some() {
        return Err(wrong());
    }
    if parsed.fragment().is_some_and(|fragment| !is_secure || fragment != "insecure") {
        return Err(invalid(format!("{FRAGMENT}. Accepted: {form}")));
    }
    let parameters = Parameters::read(parsed.query_pairs()).map_err(invalid)?;
    let has_db = !is_socket && !parsed.path().trim_matches('/').is_empty();
    parsed.set_query(None);
    let info = parsed.into_connection_info().map_err(|_| wrong())?;
    if info.redis_settings().db() < 0 {
        return Err(invalid(format!("{DATABASE}. Accepted: {form}")));
    }
    Ok(Endpoint::new(parameters.add_to(info, has_db).map_err(invalid)?))
}

/// The URL without white space around it, as from a file that ends with a line. Control characters in it are
/// refused, since the parser of `redis` would remove some of them without a word.
fn trimmed(url: &str) -> Result<&str, Invalid> {
    let url = url.trim();
    if url.contains(char::is_control) {
        return Err(Invalid::new("url", unknown_scheme("it contains a control character")));
    }
    Ok(url)
}

const ONE: &str = "redis://[user:password@]host[:port][/db], or rediss:// with TLS";
const UNIX: &str = "unix:///path[?db=number&user=name&password=password]";
const CLUSTER: &str = "redis+cluster://[user:password@]host[:port],host[:port]";
const SENTINEL: &str = "redis+sentinel://[user:password@]host[:port],host[:port]/master[/db]";

const TCP: [&str; 4] = ["redis", "rediss", "valkey", "valkeys"];
const SOCKETS: [&str; 3] = ["unix", "redis+unix", "valkey+unix"];

/// The message for an unescaped password that ends its part of the URL.
const PASSWORD: &str =
    "the password contains a character to escape. Write / as %2F, ? as %3F, # as %23 and @ as %40";

const FRAGMENT: &str = "the fragment is not #insecure of an address with TLS. In a password, write # as %23";

const DATABASE: &str = "the database is not a number";

/// Names the wrong part of the URL of one server, and the accepted form. `form`: that of such a URL. The
/// message contains no piece of the URL, since an unescaped password may be anywhere in it.
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
    let (path, _) = split(others, &['?', '#']);
    let path = path.trim_matches('/');
    if host.is_empty() {
        return "the host is missing";
    }
    if !port.is_empty()
        && port != ":"
        && port.strip_prefix(':').is_none_or(|port| port.parse::<u16>().is_err())
    {
        return "the port is not a number from 0 to 65535";
    }
    if ["0.0.0.0", "::"].contains(&host) {
        return "the host is the wildcard address, which accepts no connections";
    }
    if !path.is_empty() && path.parse::<i64>().is_err() {
        return DATABASE;
    }
    "the host, the user or the password contains a character that is not permitted"
}

fn of_socket(rest: &str) -> &'static str {
    if rest.starts_with('/') {
        "the path of the socket cannot be used"
    } else {
        "the path of the socket is missing or relative. Write three slashes before it"
    }
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

    /// The database, the user and the password of connections to the server.
    fn login(url: &str) -> (i64, Option<String>, Option<String>) {
        let (Address::One(endpoint)
        | Address::Cluster { like: endpoint, .. }
        | Address::Sentinel { like: endpoint, .. }) = Address::parse(url).expect(url);
        let settings = endpoint.info.redis_settings();
        (settings.db(), settings.username().map(str::to_owned), settings.password().map(str::to_owned))
    }

    #[test]
    fn each_part_of_a_url_that_names_database_user_or_password_is_used() {
        for (url, db, user, password) in [
            ("redis://host", 0, "", ""),
            ("redis://host/", 0, "", ""),
            ("redis://host/2", 2, "", ""),
            ("redis://host?", 0, "", ""),
            ("redis://host?db=2", 2, "", ""),
            ("redis://host/?db=2", 2, "", ""),
            ("redis://host/2?db=2", 2, "", ""),
            ("redis://host/0?db=0", 0, "", ""),
            ("redis://host?db=02", 2, "", ""),
            ("redis://me:pw@host/2", 2, "me", "pw"),
            ("redis://me@host", 0, "me", ""),
            ("redis://:pw@host?db=2", 2, "", "pw"),
            ("redis://host?user=me&password=pw", 0, "me", "pw"),
            ("redis://host?username=me&pass=pw", 0, "me", "pw"),
            ("redis://me@host?password=pw", 0, "me", "pw"),
            ("redis://:pw@host?user=me", 0, "me", "pw"),
            ("redis://me:pw@host?user=me&password=pw", 0, "me", "pw"),
            ("redis://host?password=p%40%26%2B+w", 0, "", "p@&+ w"),
            ("redis://host/1?protocol=3&user=me", 1, "me", ""),
            ("redis://host?protocol=resp2", 0, "", ""),
            ("valkey://me:pw@host?db=2", 2, "me", "pw"),
            ("unix:///socket", 0, "", ""),
            ("unix:///socket?db=2&user=me&pass=pw", 2, "me", "pw"),
            ("redis+unix:///socket?username=me&password=pw", 0, "me", "pw"),
            ("valkey+unix:///socket?db=3&protocol=2", 3, "", ""),
            ("redis+cluster://a,b?user=me&password=pw", 0, "me", "pw"),
            ("redis+cluster://me@a,b/?password=pw&db=0", 0, "me", "pw"),
            ("redis+cluster://me:pw@a,b/0?protocol=3", 0, "me", "pw"),
            ("redis+sentinel://a,b/orders?db=2", 2, "", ""),
            ("redis+sentinel://a,b/orders/2?user=me&password=pw", 2, "me", "pw"),
            ("redis+sentinel://me:pw@a,b/orders/?db=2&protocol=3", 2, "me", "pw"),
            ("redis+sentinel://a,b/orders/2?db=2", 2, "", ""),
        ] {
            let text = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
            assert_eq!(login(url), (db, text(user), text(password)), "{url}");
        }
    }

    #[test]
    fn the_parameters_of_a_sentinel_url_are_no_part_of_the_name_of_the_master() {
        let address = Address::parse("redis+sentinel://a/orders?db=2&user=me&password=pw").unwrap();
        let Address::Sentinel { ask, master, .. } = address else { panic!("no sentinels") };
        assert_eq!(master, "orders");
        let asked = ask.info.redis_settings();
        assert_eq!((asked.db(), asked.username(), asked.password()), (0, None, None));
    }

    #[test]
    #[cfg(feature = "tls")]
    fn an_address_names_its_hosts_also_after_it_was_written_and_read_again() {
        let hosts = |url: &str| Address::parse(url).unwrap().hosts();
        for (url, expected) in [
            ("redis://user:secret@host:6379/3", &[("host", 6379)][..]),
            ("rediss://:secret@[::1]:6380/0#insecure", &[("::1", 6380)]),
            ("unix:///tmp/socket?db=1", &[]),
            ("redis+sentinel://a,b:5000/orders/3", &[("a", 26379), ("b", 5000)]),
            ("redis+cluster://me:p%40secret@a:7001,[::1],c", &[("a", 7001), ("::1", 6379), ("c", 6379)]),
        ] {
            let expected: Vec<HostPort> =
                expected.iter().map(|(host, port)| ((*host).to_owned(), *port)).collect();
            assert_eq!(hosts(url), expected, "{url}");
            for (host, port) in &expected {
                let written =
                    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
                assert_eq!(hosts(&format!("redis://{written}")), [(host.clone(), *port)]);
            }
        }
    }
}
