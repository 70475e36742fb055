//! Which server it is that runs.

use redis::Connection;

/// What it is called and its version: `Redis 7.0.15`. Valkey also says which Redis it is like.
pub fn version(con: &mut Connection) -> String {
    let info: String = redis::cmd("INFO").arg("server").query(con).unwrap();
    let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name));
    match (field("valkey_version:"), field("redis_version:")) {
        (Some(version), _) => format!("Valkey {version}"),
        (None, Some(version)) => format!("Redis {version}"),
        (None, None) => "unknown".to_owned(),
    }
}

/// Without the last number, which changes nothing that is measured.
pub fn line(con: &mut Connection) -> String {
    let version = version(con);
    let line = version.rsplit_once('.').map(|(line, _)| line.to_owned());
    line.unwrap_or(version)
}
