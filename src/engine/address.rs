//! Parses an address: of one server, of the nodes of a cluster, or of a master behind sentinels.

mod wrong_part;

use super::endpoint::Endpoint;
use super::tls::{self, Certificates};
use crate::error::{CallError, Invalid};
use crate::protocol::routing::HostPort;
use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo};

/// `Server`: the type of each server's address.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "there is one, until the gate is open")]
pub(crate) enum Address<Server = ConnectionInfo> {
    One(Server),
    Cluster(Vec<Server>),
    Sentinel {
        sentinels: Vec<Server>,
        master: String,
        /// The settings of connections to the master, except its host and port.
        like: Server,
    },
}

impl Address {
    pub(crate) fn parse(url: &str) -> Result<Address, Invalid> {
        let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
        match scheme {
            "redis+cluster" | "rediss+cluster" => Address::of_cluster_url(plain(scheme), rest),
            "redis+sentinel" | "rediss+sentinel" => Address::of_sentinel_url(plain(scheme), rest),
            _ => Ok(Address::One(info(url)?)),
        }
    }

    /// The nodes of a cluster. One that can be reached is enough.
    pub(crate) fn of_cluster<S: AsRef<str>>(urls: &[S]) -> Result<Address, Invalid> {
        Ok(Address::Cluster(infos(urls, wrong_part::ONE)?))
    }

    /// `[user:password@]host[:port],host[:port]`
    fn of_cluster_url(scheme: &str, rest: &str) -> Result<Address, Invalid> {
        let urls = expand(scheme, rest)?;
        Ok(Address::Cluster(infos(&urls, wrong_part::CLUSTER)?))
    }

    /// The sentinels, and the name of the master in their configuration. `like`: the settings of connections to the
    /// master.
    pub(crate) fn of_sentinels<S: AsRef<str>>(
        sentinels: &[S],
        master: &str,
        like: ConnectionInfo,
    ) -> Result<Address, Invalid> {
        if master.is_empty() || sentinels.is_empty() {
            let why = "no sentinel, or no name of the master. Accepted: 1 sentinel or more, and the name that they use for the master";
            return Err(Invalid::new("sentinels", why));
        }
        Ok(Address::Sentinel { sentinels: infos(sentinels, wrong_part::ONE)?, master: master.to_owned(), like })
    }

    /// The same address with everything that connections to it need. Reads the certificates of the system, if they are
    /// used.
    pub(crate) fn endpoints(mut self, certificates: &Certificates) -> Result<Address<Endpoint>, CallError> {
        self.check(certificates)?;
        let tls = tls::config_for(&self.infos(), certificates)?;
        Ok(self.map(|info| Endpoint::new(info, tls.as_ref())))
    }

    /// Certificates are needless if no address uses TLS.
    fn check(&mut self, certificates: &Certificates) -> Result<(), Invalid> {
        if certificates.are_given() && !self.infos().into_iter().any(|info| tls::is_used(info)) {
            let why = "certificates are given, but no address uses TLS. Accepted: rediss:// with certificates";
            return Err(Invalid::new("url", why));
        }
        Ok(())
    }

    fn map<To>(self, of: impl Fn(ConnectionInfo) -> To) -> Address<To> {
        match self {
            Address::One(info) => Address::One(of(info)),
            Address::Cluster(nodes) => Address::Cluster(nodes.into_iter().map(of).collect()),
            Address::Sentinel { sentinels, master, like } => {
                Address::Sentinel { sentinels: sentinels.into_iter().map(&of).collect(), master, like: of(like) }
            }
        }
    }

    /// All settings from which connections are made.
    fn infos(&mut self) -> Vec<&mut ConnectionInfo> {
        match self {
            Address::One(info) => vec![info],
            Address::Cluster(nodes) => nodes.iter_mut().collect(),
            Address::Sentinel { sentinels, like, .. } => sentinels.iter_mut().chain([like]).collect(),
        }
    }

    /// `[user:password@]sentinel[:port],sentinel[:port]/master[/db]`; user and password are for the master.
    fn of_sentinel_url(scheme: &str, rest: &str) -> Result<Address, Invalid> {
        let form = wrong_part::SENTINEL;
        let (login, hosts, path) = parts(rest, form)?;
        let (master, db) = path.split_once('/').unwrap_or((path, "0"));
        if master.is_empty() {
            let why = format!("the name of the master is missing after the hosts. Accepted: {form}");
            return Err(Invalid::new("url", why));
        }
        let like = info_of(&format!("{scheme}://{login}localhost/{db}"), form)?;
        let hosts = hosts
            .split(',')
            .map(|host| if has_port(host) { format!("{scheme}://{host}") } else { format!("{scheme}://{host}:26379") });
        Ok(Address::Sentinel { sentinels: infos(&hosts.collect::<Vec<_>>(), form)?, master: master.to_owned(), like })
    }
}

/// The address of each of these nodes, and the settings of connections to all of them.
pub(super) fn addresses_of(nodes: &[Endpoint]) -> Result<(Endpoint, Vec<HostPort>), Invalid> {
    let Some(like) = nodes.first().cloned() else {
        return Err(Invalid::new("nodes", "got none. Accepted: the address of 1 node or more"));
    };
    let mut infos = nodes.iter().map(|node| &node.info);
    if infos.clone().any(|info| info.redis_settings().db() != 0) {
        let why = "the database is not 0. Accepted: no database, since a cluster has only the database 0";
        return Err(Invalid::new("url", why));
    }
    if infos.any(|info| tls::is_used(info) != tls::is_used(&like.info)) {
        let why = "some addresses use TLS and some do not. Accepted: TLS for all nodes of a cluster, or for none";
        return Err(Invalid::new("url", why));
    }
    let addresses = nodes.iter().map(|node| match node.address() {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => Ok((host.clone(), *port)),
        _ => {
            let why = "a node has no host and port. Accepted: host and port for each node of a cluster";
            Err(Invalid::new("url", why))
        }
    });
    Ok((like, addresses.collect::<Result<_, _>>()?))
}

fn needs(feature: &str) -> Invalid {
    let why =
        format!("luagate was compiled without its feature `{feature}`. Enable the feature `{feature}` in Cargo.toml");
    Invalid::new("url", why)
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
    if let Some(why) = wrong_part::password(rest) {
        return Err(Invalid::new("url", format!("{why}. Accepted: {form}")));
    }
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let login = authority.rfind('@').map_or(0, |at| at + 1);
    let (login, hosts) = authority.split_at_checked(login).unwrap_or(("", authority));
    Ok((login, hosts, path))
}

/// A URL for each host of `[user:password@]host,host[/db]`.
fn expand(scheme: &str, rest: &str) -> Result<Vec<String>, Invalid> {
    let (login, hosts, path) = parts(rest, wrong_part::CLUSTER)?;
    let urls = hosts.split(',');
    let urls = urls.map(|host| format!("{scheme}://{login}{host}/{path}"));
    Ok(urls.collect())
}

/// Parses each of these URLs.
fn infos<S: AsRef<str>>(urls: &[S], form: &str) -> Result<Vec<ConnectionInfo>, Invalid> {
    let one_of = |(index, url): (usize, &S)| {
        info_of(url.as_ref(), form).map_err(|invalid| match urls.len() {
            1 => invalid,
            count => invalid.within(&format!("address {} of {count}", index + 1)),
        })
    };
    urls.iter().enumerate().map(one_of).collect()
}

/// Parses one URL. The error does not contain its text, which may contain a password.
pub(crate) fn info(url: &str) -> Result<ConnectionInfo, Invalid> {
    info_of(url, wrong_part::ONE)
}

fn info_of(url: &str, form: &str) -> Result<ConnectionInfo, Invalid> {
    let is_secure = ["rediss:", "valkeys:"].iter().any(|s| url.starts_with(s));
    if is_secure && !cfg!(feature = "tls") {
        return Err(needs("tls")); // the program may use `redis` with TLS, which then accepts the address
    }
    url.into_connection_info().map_err(|_| Invalid::new("url", wrong_part::why(url, form)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_node_of_a_cluster_has_the_login() {
        let address = Address::parse("redis+cluster://me:p%40ss@a:7001,[::1]:7002").unwrap();
        let Address::Cluster(nodes) = address else {
            panic!("no cluster");
        };
        let shown: Vec<_> = nodes.iter().map(|info| info.addr().to_string()).collect();
        assert_eq!(shown, ["a:7001", "::1:7002"]);
        for info in nodes {
            assert_eq!(info.redis_settings().username(), Some("me"));
            assert_eq!(info.redis_settings().password(), Some("p@ss"));
        }
    }

    #[test]
    fn the_login_of_a_sentinel_url_is_the_masters() {
        let url = "redis+sentinel://:secret@a,b:5000,[::1]/orders/3";
        let Address::Sentinel { sentinels, master, like } = Address::parse(url).unwrap() else {
            panic!("no sentinels");
        };
        let shown: Vec<_> = sentinels.iter().map(|i| i.addr().to_string()).collect();
        assert_eq!(shown, ["a:26379", "b:5000", "::1:26379"]);
        assert!(sentinels.iter().all(|i| i.redis_settings().password().is_none()));
        assert_eq!(master, "orders");
        assert_eq!(like.redis_settings().password(), Some("secret"));
        assert_eq!(like.redis_settings().db(), 3);
    }
}
