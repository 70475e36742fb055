//! Promise: a user's script that begins with `holds` writes only while the permit is held, in one atomic
//! step.

use crate::own;
use crate::support::raw::Raw;
use crate::support::{Server, eventually};

use luagate::scripts::HOLDS;
use luagate::scripts::semaphore::Ask;
use luagate::{Lease, Permit};
use redis::{Commands, Connection, Script};
use std::time::Duration;

/// Writes `value` to `key` if the permit with this id and fence is held.
struct Write {
    con: Connection,
    keys: Vec<String>,
    script: Script,
}

impl Write {
    fn new(server: &Server, keys: &luagate::scripts::Keys, key: &str) -> Write {
        let [meta, holders, _] = keys.list();
        let code = "if not holds(KEYS[1], KEYS[2], ARGV[1], ARGV[2]) then return 0 end
            redis.call('SET', KEYS[3], ARGV[3])
            return 1";
        Write {
            con: server.connection(),
            keys: vec![meta.to_owned(), holders.to_owned(), key.to_owned()],
            script: Script::new(&format!("{HOLDS}{code}")),
        }
    }

    fn write(&mut self, id: &str, fence: u64, value: &str) -> bool {
        self.try_write(id, fence, value).unwrap()
    }

    fn try_write(&mut self, id: &str, fence: u64, value: &str) -> redis::RedisResult<bool> {
        let mut call = self.script.prepare_invoke();
        for key in &self.keys {
            call.key(key);
        }
        let call = call.arg(id).arg(fence).arg(value);
        call.invoke(&mut self.con)
    }

    fn by(&mut self, permit: &Permit, value: &str) -> bool {
        self.write(permit.id(), permit.fence(), value)
    }

    fn value(&mut self) -> Option<String> {
        self.con.get(&self.keys[2]).unwrap()
    }
}

#[test]
fn a_holder_can_write_and_one_that_was_paused_beyond_its_lease_cannot() {
    let server = Server::any();
    let gate = server.gate();
    let key = format!("{}:{{account}}", server.prefix);
    let mutex = gate.mutex("account");
    let paused = mutex.clone().with(|lock| lock.lease(Lease::fixed(Duration::from_secs(60)))).lock().unwrap();
    let mut write = Write::new(&server, paused.keys(), &key);
    assert!(write.by(&paused, "first"));
    paused.refresh_for(Duration::from_millis(20)).unwrap();
    let next = mutex.try_lock_for(Duration::from_secs(10)).unwrap();
    assert!(write.by(&next, "next"));
    // The paused holder resumes, does not check `is_lost`, and writes.
    assert!(!write.by(&paused, "late"));
    assert_eq!(write.value().as_deref(), Some("next"));
    let (id, fence) = (next.id().to_owned(), next.fence());
    next.release().unwrap();
    assert!(!write.write(&id, fence, "after its release"));
}

#[test]
fn an_expired_lease_does_not_hold_before_any_script_removed_it() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    let key = format!("{}:{{raw}}", server.prefix);
    let mut write = Write::new(&server, &raw.keys, &key);
    let grant = raw.grant(Ask { lease_ms: 30, ..raw.ask("id") });
    raw.wait_until(grant.expires_at.unwrap());
    assert!(!write.write("id", grant.fence, "late"));
    assert_eq!(write.value(), None);
}

#[test]
fn a_missing_argument_holds_nothing() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    raw.grant(raw.ask("id"));
    let [meta, holders, _] = raw.key_names();
    let code = "return holds(KEYS[1], KEYS[2], ARGV[1], ARGV[2]) and 1 or 0";
    let script = Script::new(&format!("{HOLDS}{code}"));
    let ask = |raw: &mut Raw| -> bool {
        let mut call = script.key(&meta);
        call.key(&holders).arg("id").invoke(&mut raw.con).unwrap()
    };
    assert!(!ask(&mut raw));
    let _: () = raw.con.del(&meta).unwrap();
    assert!(!ask(&mut raw));
}

#[test]
fn the_fence_distinguishes_two_permits_of_one_id() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    let key = format!("{}:{{raw}}", server.prefix);
    let mut write = Write::new(&server, &raw.keys, &key);
    let first = raw.grant(raw.ask("own"));
    raw.assert_released("own");
    let second = raw.grant(raw.ask("own"));
    assert!(!write.write("own", first.fence, "first"));
    assert!(write.write("own", second.fence, "second"));
}

#[test]
fn holds_works_for_permits_of_every_kind() {
    let server = Server::any();
    let gate = server.gate();
    let key = format!("{}:{{any}}", server.prefix);
    let many = gate.semaphore("any", 5).acquire_many(3).unwrap();
    assert!(Write::new(&server, many.keys(), &key).by(&many, "many"));
    let permanent = gate.semaphore("any", 5).lease(Lease::PERMANENT).acquire().unwrap();
    assert!(Write::new(&server, permanent.keys(), &key).by(&permanent, "permanent"));
    let writer = gate.rwlock("any").write().unwrap();
    assert!(Write::new(&server, writer.keys(), &key).by(&writer, "writer"));
}

#[test]
fn a_waiter_does_not_hold() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    let key = format!("{}:{{raw}}", server.prefix);
    let mut write = Write::new(&server, &raw.keys, &key);
    raw.grant(raw.ask("holder"));
    let ticket = raw.queue(Ask { wait_ms: 60_000, ..raw.ask("waiter") });
    assert!(!write.write("waiter", ticket, "waiter"));
}

#[test]
fn nothing_is_held_after_either_key_was_lost() {
    let server = Server::any();
    for lost in 0..2 {
        let mut raw = Raw::named(&server, &format!("lost-{lost}"), 1);
        let key = format!("{}:{{lost-{lost}}}", server.prefix);
        let mut write = Write::new(&server, &raw.keys, &key);
        let grant = raw.grant(raw.ask("id"));
        assert!(write.write("id", grant.fence, "before"));
        let [meta, holders, _] = raw.key_names();
        let _: () = raw.con.del([meta, holders][lost].clone()).unwrap();
        assert!(!write.write("id", grant.fence, "after"));
    }
}

#[test]
fn a_state_of_another_layout_version_is_an_error() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    let key = format!("{}:{{raw}}", server.prefix);
    let mut write = Write::new(&server, &raw.keys, &key);
    let grant = raw.grant(raw.ask("id"));
    let meta = raw.key_names()[0].clone();
    let newer = vec![8_u8; 60];
    let _: () = raw.con.hset(&meta, "the state", newer).unwrap();
    let error = write.try_write("id", grant.fence, "never").unwrap_err();
    let text = error.to_string();
    assert!(text.contains("LUAGATE layout: the stored state has version 2. Accepted: version 1"), "{text}");
    assert_eq!(write.value(), None);
}

#[test]
fn in_a_cluster_the_users_key_can_share_the_hash_tag() {
    let server = own!(Server::cluster_node());
    let guard = server.gate().mutex("account").lock().unwrap();
    let key = format!("{}:balance:{{account}}", server.prefix);
    let mut write = Write::new(&server, guard.keys(), &key);
    assert!(write.by(&guard, "100"));
    eventually("the value is written", || write.value());
}
