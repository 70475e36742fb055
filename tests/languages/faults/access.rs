//! A server that refuses the client: its error comes at once, and says what to do.

use super::client::Client;
use super::driver::{Driver, Reply};
use super::language::ROOT;
use super::pool::Pooled;
use super::scene::{open, server};
use super::support::{Server, eventually};
use libtest_mimic::Failed;
use redis::Connection;
use std::collections::HashMap;

/// The first refusal: of `open`, or of a call that waits.
fn refusal(client: &Client, url: &str, prefix: &str) -> Reply {
    let mut driver = Pooled::start(client);
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
    assert!(!reply.get("message").contains(".."), "{reply:?}");
    assert!(refusal(client, &server.url, "p").is_error("permission").word == "error");
    // Before a login the server refuses long commands by another error.
    let mut driver = Pooled::start(client);
    if driver.call(open(&server.url, "p")).word == "done" {
        driver.call("try gate=g permit=p name=line").is_error("permission");
    }
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
        // The Rust library shows the server's text, which names the command. Before Redis 7 it names no
        // subcommand.
        let command = missing.split('|').next().unwrap_or(missing);
        let named = if client.is_rust() {
            command.trim_start_matches('+')
        } else if message.contains("command or its subcommand") {
            command
        } else {
            missing
        };
        assert!(message.contains(named), "{rule}: it does not name {named}: {reply:?}");
    }
    Ok(())
}

/// The permissions that the README of the client lists: keys, channels and commands.
fn listed(client: &Client) -> Result<Vec<String>, Failed> {
    let package = if client.base() == "asyncio" { "python" } else { client.base() };
    let text = std::fs::read_to_string(format!("{ROOT}/clients/{package}/README.md"))?;
    let line = text
        .lines()
        .find(|line| line.starts_with("ACL SETUSER luagate reset on >password "))
        .ok_or("no line")?;
    Ok(line.split(' ').filter(|rule| rule.starts_with(['~', '&', '+'])).map(str::to_owned).collect())
}

/// The commands of the scripts for semaphores, which the line of the guide also contains.
fn of_scripts() -> Result<Vec<String>, Failed> {
    let mut scripts = String::new();
    for file in std::fs::read_dir(format!("{ROOT}/lua/dist/semaphore"))? {
        scripts += &std::fs::read_to_string(file?.path())?.to_lowercase();
    }
    let guide = std::fs::read_to_string(format!("{ROOT}/src/guide/production.md"))?;
    let line = guide
        .lines()
        .find(|line| line.contains("~luagate:* ") && line.contains("+evalsha"))
        .ok_or("no line")?;
    let is_called =
        |rule: &str| scripts.contains(&format!("'{}'", rule[1..].split('|').next().unwrap_or(rule)));
    Ok(line.split(' ').filter(|rule| rule.starts_with('+') && is_called(rule)).map(str::to_owned).collect())
}

/// With the permissions that the README lists, every call works, and the server refuses nothing. It lists all
/// commands of the scripts, and no others.
pub fn permissions_of_the_readme(client: &Client) -> Result<(), Failed> {
    const OF_CLIENTS: [&str; 4] = ["+ping", "+evalsha", "+eval", "+subscribe"];
    let mut rules = listed(client)?;
    let server = server(&[]);
    let mut con = server.connection();
    user(&mut con, &format!("-@all resetkeys resetchannels {}", rules.join(" ")))?;
    let mut driver = Pooled::start(client);
    driver.call(open(&format!("redis://client:password@{}/", server.address()), "luagate")).expect("done");
    everything(&mut driver, &server)?;
    let refused: Vec<HashMap<String, redis::Value>> = redis::cmd("ACL").arg("LOG").query(&mut con)?;
    let refused = refused.iter().map(|entry| redis::from_redis_value_ref::<String>(&entry["object"]));
    let refused: Vec<String> = refused.collect::<Result<_, _>>()?;
    let is_optional = |object: &String| ["client|setinfo", "client"].contains(&object.as_str()); // see the README
    assert!(refused.iter().all(is_optional), "{refused:?}");
    rules.retain(|rule| rule.starts_with('+') && !OF_CLIENTS.contains(&rule.as_str()));
    assert_eq!(rules, of_scripts()?);
    Ok(())
}

fn everything(driver: &mut Driver, server: &Server) -> Result<(), Failed> {
    let line = luagate::Gate::builder(&server.url).prefix("luagate").open()?.semaphore("line", 1);
    driver.call("try gate=g permit=p name=line lease=10").expect("granted");
    eventually("the lease ends", || (line.inspect().unwrap().in_use == 0).then_some(()));
    let wants =
        ["name=line", "name=m kind=mutex", "name=w kind=write", "name=r kind=read", "name={g}:a name={g}:b"];
    for want in wants {
        driver.call(format!("try gate=g permit=p {want} label=a at_least=1 lease=20000+")).expect("granted");
        driver.call("refresh permit=p").expect("refreshed");
        driver.call("release permit=p").expect("released");
    }
    for more in ["timeout=10000 max_waiting=5", "head_start=9 lease=permanent", "several=1"] {
        let held = line.acquire()?;
        let call = driver.send(format!("acquire gate=g permit=p name=line {more}"));
        eventually("it waits", || (line.inspect().unwrap().waiter_count == 1).then_some(()));
        driver.call("inspect gate=g name=line").expect("state");
        held.release()?;
        driver.end(&call).0.expect("granted");
        driver.call("release permit=p").expect("released");
    }
    driver.call("resize gate=g name=line to=2").expect("resized");
    driver.call("revoke gate=g name=line id=nobody").expect("gone");
    Ok(())
}
