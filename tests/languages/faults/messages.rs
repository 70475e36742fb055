//! Messages of others on the channel of a client: any program with the permission can publish there.

use super::client::Client;
use super::scene::Scene;
use libtest_mimic::Failed;

/// Messages that no script publishes, and some that are not signed. The words in capitals stand for the id of
/// the waiter, a fence, and times, as a script would choose them.
const BROKEN: [&[u8]; 20] = [
    b"",
    b" ",
    b"     ",
    b"\0",
    b"\xff\xfe\x80",
    b"ID",
    b"ID 1 FENCE END",
    b"ID 1 FENCE END NOW",
    b"ID 1 FENCE END NOW ",
    b"ID 1 FENCE END NOW 0000000000000000000000000000000000000000",
    b"ID 1 FENCE END NOW 0000000000000000000000000000000000000000 more",
    b"ID 1 FENCE END NOW\n0000000000000000000000000000000000000000",
    b"ID 0 0 -1 NOW 0000000000000000000000000000000000000000",
    b"ID 0 0 -1 NOW",
    b"ID -1 -7 -5000 -4000 x",
    b"ID 1 99999999999999999999999999 5000 4000 x",
    b"ID 1e9 NaN Infinity 0x10 x",
    b"ID 1 FENCE \xff NOW x",
    b"* * * * * *",
    b"{\"id\":\"ID\",\"fence\":7}",
];

/// A waiter ignores them, and gets its permit when the server grants it.
pub fn broken(client: &Client) -> Result<(), Failed> {
    let mut scene = Scene::new(client).has_waited();
    let line = scene.semaphore("line");
    let held = line.try_acquire()?;
    let call = scene.driver.send("acquire gate=g permit=p timeout=60000 name=line");
    scene.waits("line", 1);
    let id = line.inspect()?.waiters[0].id.clone();
    let mut con = scene.server.connection();
    let channels = format!("{}:inbox:*", scene.server.prefix);
    let channels: Vec<Vec<u8>> = redis::cmd("PUBSUB").arg("CHANNELS").arg(channels).query(&mut con)?;
    let long = "x".repeat(1_000_000).into_bytes();
    let (seconds, _): (u64, u64) = redis::cmd("TIME").query(&mut con)?;
    let [now, end] = [1, 31].map(|later| ((seconds + later) * 1_000).to_string());
    let words = [("ID", &*id), ("FENCE", "9000000000000000"), ("NOW", &now), ("END", &end)];
    let filled = |message: &&[u8]| {
        words.iter().fold(message.to_vec(), |text, (word, with)| replaced(&text, word, with))
    };
    for message in BROKEN.iter().map(filled).chain([long]) {
        for channel in &channels {
            let heard: u32 = redis::cmd("PUBLISH").arg(channel).arg(&message).query(&mut con)?;
            assert!(heard > 0, "nobody has subscribed to {:?}", String::from_utf8_lossy(channel));
        }
    }
    assert!(!channels.is_empty());
    held.release()?;
    let (reply, _) = scene.driver.end(&call);
    reply.expect("granted");
    let state = line.inspect()?;
    assert_eq!(reply.get("fence"), state.holders[0].fence.to_string(), "the grant of the server");
    assert_eq!(state.holders[0].id, id);
    scene.call("release permit=p").expect("released");
    scene.is_free("line");
    Ok(())
}

/// The text with this word in place of the other one.
fn replaced(text: &[u8], word: &str, with: &str) -> Vec<u8> {
    match text.windows(word.len()).position(|found| found == word.as_bytes()) {
        Some(at) => [&text[..at], with.as_bytes(), &text[at + word.len()..]].concat(),
        None => text.to_vec(),
    }
}
