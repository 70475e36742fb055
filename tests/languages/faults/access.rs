//! A server that refuses the client: its error comes at once, and says what to do.

use super::client::Client;
use super::driver::{Driver, Reply};
use super::scene::{open, server};
use libtest_mimic::Failed;
use redis::Connection;

/// The first refusal: of `open`, or of a call that waits.
fn refusal(client: &Client, url: &str, prefix: &str) -> Reply {
    let mut driver = Driver::start(client);
    let opened = driver.call(open(url, prefix));
    if opened.word != "done" {
        return opened;
    }
    driver.call("acquire gate=g permit=p timeout=60000 name=line")
}

pub fn wrong_password(client: &Client) -> Result<(), Failed> {
    let server = server(&["--requirepass", "secret"]);
    let url = format!("redis://:hunter2@{}/", server.address());
    let reply = refusal(client, &url, "p");
    reply.is_error("permission");
    assert!(!reply.get("logged").is_empty(), "what a program logs: {reply:?}");
    assert!(!format!("{reply:?}").contains("hunter2"), "it shows the password: {reply:?}");
    assert!(refusal(client, &server.url, "p").is_error("permission").word == "error");
    Ok(())
}

fn user(con: &mut Connection, rules: &str) -> redis::RedisResult<()> {
    let all = format!("reset on >password ~* resetchannels &p:inbox:* +@all {rules}");
    redis::cmd("ACL").arg("SETUSER").arg("client").arg(all.split(' ').collect::<Vec<_>>()).exec(con)
}

/// Each permission that waiting needs. Somebody holds the permit, so the call must wait.
pub fn missing_permission(client: &Client) -> Result<(), Failed> {
    let server = server(&[]);
    let gate = luagate::Gate::builder(&server.url).prefix("p").open()?;
    let _held = gate.semaphore("line", 1).try_acquire()?;
    let url = format!("redis://client:password@{}/", server.address());
    let cases = [
        ("resetchannels", "&p:inbox:*"),
        ("-subscribe", "+subscribe"),
        ("-publish", "+publish"),
        ("-pubsub", "+pubsub|numsub"),
        ("-evalsha -eval", "+evalsha"),
    ];
    for (rule, missing) in cases {
        user(&mut server.connection(), rule)?;
        let reply = refusal(client, &url, "p");
        reply.is_error("permission");
        let message = reply.get("message").to_lowercase();
        // The Rust library shows the server's text, which names the command.
        let named = if client.is_rust() {
            missing.trim_start_matches('+').split('|').next().unwrap_or(missing)
        } else {
            missing
        };
        assert!(message.contains(named), "{rule}: it does not name {named}: {reply:?}");
    }
    Ok(())
}
