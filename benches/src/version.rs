//! The name and version of a server.

use redis::Connection;

/// For example `Redis 7.0.15`. Valkey also reports a Redis version.
pub fn version(con: &mut Connection) -> String {
    let info: String = redis::cmd("INFO").arg("server").query(con).unwrap();
    let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name));
    match (field("valkey_version:"), field("redis_version:")) {
        (Some(version), _) => format!("Valkey {version}"),
        (None, Some(version)) => format!("Redis {version}"),
        (None, None) => "unknown".to_owned(),
    }
}

/// Without the last number, which has no effect on the measurements.
pub fn line(con: &mut Connection) -> String {
    let version = version(con);
    let line = version.rsplit_once('.').map(|(line, _)| line.to_owned());
    line.unwrap_or(version)
}
