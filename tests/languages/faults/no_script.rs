//! A server or a proxy that refuses SCRIPT, as some proxies do: EVAL stores the scripts too.

use super::client::Client;
use super::pool::Pooled;
use super::scene::{open, server};
use libtest_mimic::Failed;

/// The server has no scripts, and the user may not call SCRIPT. Everything works.
pub fn refused(client: &Client) -> Result<(), Failed> {
    let server = server(&[]);
    let user = ["client", "on", ">password", "~*", "&*", "+@all", "-script"];
    redis::cmd("ACL").arg("SETUSER").arg(&user).exec(&mut server.connection())?;
    let url = format!("redis://client:password@{}/", server.address());
    let mut driver = Pooled::start(client);
    driver.call(open(&url, &server.prefix)).expect("done");
    driver.call("acquire gate=g permit=p timeout=10000 name=line").expect("granted");
    driver.call("refresh permit=p").expect("refreshed");
    assert_eq!(driver.call("release permit=p").expect("released").get("held"), "true");
    driver.call("try gate=g permit=s name={s}:a name={s}:b").expect("granted");
    driver.call("release permit=s").expect("released");
    let block = "use gate=g permit=u timeout=10000 name=line hold=0 work=value";
    driver.call(block).expect("returned");
    // The server stores a script that was sent once.
    redis::cmd("SCRIPT").arg("FLUSH").exec(&mut server.connection())?;
    redis::cmd("CONFIG").arg("RESETSTAT").exec(&mut server.connection())?;
    for _ in 0..3 {
        driver.call(block).expect("returned");
    }
    let counts = super::support::command_counts(&mut server.connection());
    assert!(counts.get("eval").copied().unwrap_or(0) <= 3, "the scripts are sent each time: {counts:?}");
    Ok(())
}
