//! What an address means: one server, the nodes of a cluster, or a master that sentinels know.

use crate::error::{CallError, Invalid};
use crate::tls::{self, Certificates};
use redis::{ConnectionInfo, IntoConnectionInfo};

const TAKES: &str = "takes redis://[user:password@]host[:port][/db], rediss:// with TLS, unix:///path, redis+cluster://host:port,host:port or redis+sentinel://host:port,host:port/master";

#[derive(Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "there is one, until the gate is open"
)]
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
        /// How connections to the master are made, but for its host and port.
        like: ConnectionInfo,
    },
}

impl Address {
    pub(crate) fn parse(url: &str) -> Result<Address, Invalid> {
        let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
        match scheme {
            "redis+cluster" | "rediss+cluster" => Address::of_cluster(&expand(plain(scheme), rest)),
            "redis+sentinel" | "rediss+sentinel" => Address::of_sentinel_url(plain(scheme), rest),
            _ => Ok(Address::One(info(url)?)),
        }
    }

    /// The nodes of a cluster; one that can be reached is enough.
    #[cfg(feature = "cluster")]
    pub(crate) fn of_cluster<S: AsRef<str>>(urls: &[S]) -> Result<Address, Invalid> {
        let nodes = urls.iter().map(|url| info(url.as_ref()));
        Ok(Address::Cluster(nodes.collect::<Result<_, _>>()?))
    }

    #[cfg(not(feature = "cluster"))]
    fn of_cluster(_: &[String]) -> Result<Address, Invalid> {
        Err(needs("cluster"))
    }

    /// Sentinels, and the name by which they know the master; who connects to the master as `like` says.
    #[cfg(feature = "sentinel")]
    pub(crate) fn of_sentinels<S: AsRef<str>>(
        sentinels: &[S],
        master: &str,
        like: ConnectionInfo,
    ) -> Result<Address, Invalid> {
        if master.is_empty() || sentinels.is_empty() {
            let why = "takes one sentinel or more, and the name by which they know the master";
            return Err(Invalid::new("sentinels", why));
        }
        let sentinels = sentinels.iter().map(|url| info(url.as_ref()));
        Ok(Address::Sentinel {
            sentinels: sentinels.collect::<Result<_, _>>()?,
            master: master.to_owned(),
            like,
        })
    }

    /// The same, with what connections by TLS take.
    pub(crate) fn prepared(mut self, certificates: &Certificates) -> Result<Address, CallError> {
        let mut infos = self.infos();
        if certificates.are_given() && !infos.iter().any(|info| tls::is_used(info)) {
            let why = "takes rediss:// where certificates are given, since nothing else uses them";
            return Err(Invalid::new("url", why).into());
        }
        for info in &mut infos {
            **info = tls::prepare(info.clone(), certificates)?;
        }
        Ok(self)
    }

    /// All from which connections are made.
    fn infos(&mut self) -> Vec<&mut ConnectionInfo> {
        match self {
            Address::One(info) => vec![info],
            #[cfg(feature = "r2d2")]
            Address::Pool(_, info) => vec![info],
            #[cfg(feature = "cluster")]
            Address::Cluster(nodes) => nodes.iter_mut().collect(),
            #[cfg(feature = "sentinel")]
            Address::Sentinel {
                sentinels, like, ..
            } => sentinels.iter_mut().chain([like]).collect(),
        }
    }

    /// `[user:password@]sentinel[:port],sentinel[:port]/master[/db]`; user and password are those of the master.
    #[cfg(feature = "sentinel")]
    fn of_sentinel_url(scheme: &str, rest: &str) -> Result<Address, Invalid> {
        let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
        if path.contains('@') {
            // It would be taken for the name of the master, which is told.
            let why = "takes a password with its / written as %2F, and its @ as %40";
            return Err(Invalid::new("url", why));
        }
        let (master, db) = path.split_once('/').unwrap_or((path, "0"));
        let (login, hosts) = hosts.rsplit_once('@').unwrap_or(("", hosts));
        let like = match login {
            "" => info(&format!("{scheme}://localhost/{db}"))?,
            login => info(&format!("{scheme}://{login}@localhost/{db}"))?,
        };
        let hosts = hosts.split(',').map(|host| match has_port(host) {
            true => format!("{scheme}://{host}"),
            false => format!("{scheme}://{host}:26379"),
        });
        Address::of_sentinels(&hosts.collect::<Vec<_>>(), master, like)
    }

    #[cfg(not(feature = "sentinel"))]
    fn of_sentinel_url(_: &str, _: &str) -> Result<Address, Invalid> {
        Err(needs("sentinel"))
    }
}

fn needs(feature: &str) -> Invalid {
    let why = format!("needs the feature `{feature}` of luagate, which is off");
    Invalid::new("url", why)
}

/// Without the part that tells what is behind it.
fn plain(scheme: &str) -> &str {
    scheme.split('+').next().unwrap_or(scheme)
}

#[cfg(feature = "sentinel")]
fn has_port(host: &str) -> bool {
    // The colons of `[::1]` are none.
    host.rsplit(']').next().is_some_and(|end| end.contains(':'))
}

/// A url for each host of `[user:password@]host,host[/db]`.
fn expand(scheme: &str, rest: &str) -> Vec<String> {
    let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (login, hosts) = match hosts.rsplit_once('@') {
        Some((login, hosts)) => (format!("{login}@"), hosts),
        None => (String::new(), hosts),
    };
    let hosts = hosts.split(',');
    hosts
        .map(|host| format!("{scheme}://{login}{host}/{path}"))
        .collect()
}

/// What one url says. Its text stays out of the error: it may have a password.
pub(crate) fn info(url: &str) -> Result<ConnectionInfo, Invalid> {
    url.into_connection_info().map_err(|error| {
        let is_secure = ["rediss:", "valkeys:"].iter().any(|s| url.starts_with(s));
        if is_secure && !cfg!(feature = "tls") {
            return needs("tls");
        }
        // The detail is a piece of the url.
        let detail = error.detail().unwrap_or("\0");
        let text = error.to_string().replace(detail, "...");
        Invalid::new("url", format!("{text}; {TAKES}"))
    })
}

#[cfg(test)]
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
        let Address::Sentinel {
            sentinels,
            master,
            like,
        } = Address::parse(url).unwrap()
        else {
            panic!("no sentinels");
        };
        let shown: Vec<_> = sentinels.iter().map(|i| i.addr().to_string()).collect();
        assert_eq!(shown, ["a:26379", "b:5000", "::1:26379"]);
        assert!(
            sentinels
                .iter()
                .all(|i| i.redis_settings().password().is_none())
        );
        assert_eq!(master, "orders");
        assert_eq!(like.redis_settings().password(), Some("secret"));
        assert_eq!(like.redis_settings().db(), 3);
    }

    #[test]
    fn what_is_no_address_is_told_without_the_password() {
        for url in [
            "redis://:secret@host:port",
            "redis+cluster://:secret@",
            "redis+sentinel://:secret@host",
            "http://:secret@host",
        ] {
            let error = Address::parse(url).err().unwrap();
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }
}
