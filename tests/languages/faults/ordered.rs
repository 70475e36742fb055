//! Calls that come after the release of a block which the server did not run where it was sent.

use super::client::Client;
use super::scripted::{Fate, Scripted, Seen};
use super::support::eventually;
use libtest_mimic::Failed;

const UNKNOWN_SCRIPT: &str = "-NOSCRIPT No matching script. Please use EVAL.\r\n";
const LOADING: &str = "-LOADING Redis is loading the dataset in memory\r\n";
const FORBIDDEN: &str = "-NOPERM this user has no permissions to run the 'zrem' command\r\n";

/// Blocks, and the calls that come at once after them.
const CALLS: [(&str, &str); 3] = [
    ("use gate=g timeout=10000 name={s}:a lease=60000+", "try gate=g permit=p name={s}:a"),
    ("use gate=g timeout=10000 name={s}:a lease=60000+", "try gate=g permit=p name={s}:a name={s}:b"),
    ("use gate=g timeout=10000 name={s}:b lease=60000+", "try gate=g permit=p name={s}:a name={s}:b"),
];

/// The release fails when the next call has been sent behind it. That call is denied, and asks again behind the
/// repeated release.
fn failed_ahead(client: &Client, reply: &'static str) -> Result<(), Failed> {
    let mut scene = Scripted::new(client);
    for (block, call) in CALLS.repeat(5) {
        scene.next("release", Fate::AnsweredBehind(reply));
        scene.driver.call(block).expect("returned");
        scene.driver.call(call).expect("granted");
        assert!(scene.is_done());
        scene.driver.call("release permit=p").expect("released");
    }
    Ok(())
}

pub fn unknown_script(client: &Client) -> Result<(), Failed> {
    failed_ahead(client, UNKNOWN_SCRIPT)
}

pub fn refused(client: &Client) -> Result<(), Failed> {
    failed_ahead(client, LOADING)?;
    failed_ahead(client, FORBIDDEN)
}

/// The release is refused again and again. A denial that comes then stands after the second call. The first call
/// after the last refusal comes behind the release, without a pause.
pub fn refused_for_long(client: &Client) -> Result<(), Failed> {
    let mut scene = Scripted::new(client);
    for (block, call) in CALLS {
        scene.always(Some(("release", Fate::Answered(FORBIDDEN))));
        scene.driver.call(block).expect("returned");
        scene.seen();
        scene.driver.call(call).is_error("denied");
        let asked = scene.seen().iter().filter(|seen| seen.script.contains("acquire")).count();
        assert!((1..=2).contains(&asked), "{asked} calls");
        // The pauses between its repetitions are long now.
        let mut count = 0;
        eventually("six repetitions", || {
            count += scene.seen().iter().filter(|seen| seen.script == "release").count();
            (count >= 6).then_some(())
        });
        scene.always(None);
        scene.driver.call(call).expect("granted");
        let seen = scene.seen();
        let [.., release, acquire] = &seen[..] else { return Err(format!("{seen:?}").into()) };
        assert_eq!(release.script, "release", "{seen:?}");
        assert_eq!(release.connection, acquire.connection, "{seen:?}");
        scene.driver.call("release permit=p").expect("released");
    }
    Ok(())
}

/// A reply that no script gives. It may belong to another call, and so may the next one on this connection.
pub fn forged_reply(client: &Client) -> Result<(), Failed> {
    let usage = "*5\r\n$6\r\ndenied\r\n:3\r\n:1\r\n:1\r\n*0\r\n";
    let calls = [
        ("acquire", "try gate=g permit=p name={s}:a", "+other\r\n"),
        ("acquire", "acquire gate=g permit=p timeout=1000 name={s}:a", "+other\r\n"),
        ("try_acquire_several", "try gate=g permit=p name={s}:a name={s}:b", "+other\r\n"),
        ("try_acquire_several", "try gate=g permit=p name={s}:a name={s}:b", usage),
    ];
    for (script, call, reply) in calls {
        let mut scene = Scripted::new(client);
        scene.seen();
        scene.next(script, Fate::Answered(reply));
        let answer = scene.driver.call(call);
        assert_eq!(answer.word, "error", "{answer:?}");
        assert!(answer.get("message").contains("never returns"), "{answer:?}");
        let mut seen: Vec<Seen> = Vec::new();
        let (asked, release) = eventually("its release", || {
            seen.extend(scene.seen());
            let asked = seen.iter().find(|one| one.script == script)?;
            let release = seen.iter().find(|one| one.script == "release" && one.id == asked.id)?;
            Some((asked.clone(), release.clone()))
        });
        assert_ne!(asked.connection, release.connection, "{seen:?}");
        scene.driver.call("try gate=g permit=p name={s}:a").expect("granted");
        seen.extend(scene.seen());
        let on_it = seen.iter().filter(|one| one.connection == asked.connection).count();
        assert_eq!(on_it, 1, "{seen:?}");
    }
    Ok(())
}
