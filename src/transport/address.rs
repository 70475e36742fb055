//! Parses an address: of one server, of the nodes of a cluster, or of a master behind sentinels.

mod wrong_part;

use crate::error::{CallError, Invalid};
use crate::transport::tls::{self, Certificates};
use redis::{ConnectionInfo, IntoConnectionInfo};

#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "there is one, until the gate is open")]
pub(crate) enum Address {
    One(ConnectionInfo),
    #[cfg(feature = "r2d2")]
    Pool(r2d2::Pool<redis::Client>, ConnectionInfo),
    #[cfg(feature = "cluster")]
    Cluster(Vec<ConnectionInfo>),
    #[cfg(feature = "sentinel")]
    Sentinel {
        sentinels: Vec<ConnectionInfo>,
        master: String,
        /// The settings of connections to the master, except its host and port.
        like: ConnectionInfo,
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
    #[cfg(feature = "cluster")]
    pub(crate) fn of_cluster<S: AsRef<str>>(urls: &[S]) -> Result<Address, Invalid> {
        Ok(Address::Cluster(infos(urls, wrong_part::ONE)?))
    }

    /// `[user:password@]host[:port],host[:port]`
    #[cfg(feature = "cluster")]
    fn of_cluster_url(scheme: &str, rest: &str) -> Result<Address, Invalid> {
        let urls = expand(scheme, rest)?;
        Ok(Address::Cluster(infos(&urls, wrong_part::CLUSTER)?))
    }

    #[cfg(not(feature = "cluster"))]
    fn of_cluster_url(_: &str, _: &str) -> Result<Address, Invalid> {
        Err(needs("cluster"))
    }

    /// The sentinels, and the name of the master in their configuration. `like`: the settings of connections to the
    /// master.
    #[cfg(feature = "sentinel")]
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

    /// The same address with the settings for TLS.
    pub(crate) fn prepared(mut self, certificates: &Certificates) -> Result<Address, CallError> {
        let mut infos = self.infos();
        if certificates.are_given() && !infos.iter().any(|info| tls::is_used(info)) {
            let why = "certificates are given, but no address uses TLS. Accepted: rediss:// with certificates";
            return Err(Invalid::new("url", why).into());
        }
        for info in &mut infos {
            **info = tls::prepare(info.clone(), certificates)?;
        }
        Ok(self)
    }

    /// The same address, if the async API can use it.
    #[cfg(feature = "tokio")]
    pub(crate) fn for_tasks(mut self) -> Result<Address, Invalid> {
        let uses_tls = self.infos().iter().any(|info| tls::is_used(info));
        match uses_tls && !cfg!(feature = "tokio-tls") {
            true => Err(needs("tokio-tls")),
            false => Ok(self),
        }
    }

    /// All settings from which connections are made.
    fn infos(&mut self) -> Vec<&mut ConnectionInfo> {
        match self {
            Address::One(info) => vec![info],
            #[cfg(feature = "r2d2")]
            Address::Pool(_, info) => vec![info],
            #[cfg(feature = "cluster")]
            Address::Cluster(nodes) => nodes.iter_mut().collect(),
            #[cfg(feature = "sentinel")]
            Address::Sentinel { sentinels, like, .. } => sentinels.iter_mut().chain([like]).collect(),
        }
    }

    /// `[user:password@]sentinel[:port],sentinel[:port]/master[/db]`; user and password are for the master.
    #[cfg(feature = "sentinel")]
    fn of_sentinel_url(scheme: &str, rest: &str) -> Result<Address, Invalid> {
        let form = wrong_part::SENTINEL;
        let (login, hosts, path) = parts(rest, form)?;
        let (master, db) = path.split_once('/').unwrap_or((path, "0"));
        if master.is_empty() {
            let why = format!("the name of the master is missing after the hosts. Accepted: {form}");
            return Err(Invalid::new("url", why));
        }
        let like = info_of(&format!("{scheme}://{login}localhost/{db}"), form)?;
        let hosts = hosts.split(',').map(|host| match has_port(host) {
            true => format!("{scheme}://{host}"),
            false => format!("{scheme}://{host}:26379"),
        });
        Ok(Address::Sentinel { sentinels: infos(&hosts.collect::<Vec<_>>(), form)?, master: master.to_owned(), like })
    }

    #[cfg(not(feature = "sentinel"))]
    fn of_sentinel_url(_: &str, _: &str) -> Result<Address, Invalid> {
        Err(needs("sentinel"))
    }
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

#[cfg(feature = "sentinel")]
fn has_port(host: &str) -> bool {
    // The colons of `[::1]` do not begin a port.
    host.rsplit(']').next().is_some_and(|end| end.contains(':'))
}

/// Splits into `user:password@` or nothing, `host,host`, and the text after the first slash.
#[cfg(any(feature = "cluster", feature = "sentinel"))]
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
#[cfg(feature = "cluster")]
fn expand(scheme: &str, rest: &str) -> Result<Vec<String>, Invalid> {
    let (login, hosts, path) = parts(rest, wrong_part::CLUSTER)?;
    let urls = hosts.split(',');
    let urls = urls.map(|host| format!("{scheme}://{login}{host}/{path}"));
    Ok(urls.collect())
}

/// Parses each of these URLs.
#[cfg(any(feature = "cluster", feature = "sentinel"))]
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
    url.into_connection_info().map_err(|_| {
        let is_secure = ["rediss:", "valkeys:"].iter().any(|s| url.starts_with(s));
        if is_secure && !cfg!(feature = "tls") {
            return needs("tls");
        }
        Invalid::new("url", wrong_part::why(url, form))
    })
}

#[cfg(all(test, any(feature = "cluster", feature = "sentinel")))]
mod tests {
    use super::*;

    #[test]
    #[cfg(feature = "cluster")]
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
    #[cfg(feature = "sentinel")]
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
