//! The calls to a latch.

use super::exchange::Wire;
use crate::protocol::keys::LatchKeys;
use crate::protocol::latch::{Count, CountDown, Delete, Wait};

pub(super) fn check(wire: &mut Wire) {
    wire.keys = "2 app:latch:{l} app:latch.waiters:{l}";
    let keys = &LatchKeys::new("app", "l").unwrap();
    let (count, life_ms, wait_ms) = (2, 60_000, 15_000);
    let down = |wire: &mut Wire, id, words| {
        let call = CountDown { keys, id, count, life_ms };
        wire.call("latch/count_down", call, words);
    };
    let wait = |wire: &mut Wire, inbox, words| {
        let call = Wait { keys, count, life_ms, wait_ms, inbox };
        wire.call("latch/wait", call, words);
    };
    let state = |wire: &mut Wire| wire.call("latch/count", Count { keys }, "K");
    state(wire); // none
    down(wire, "a", "K a 2 60000"); // counted
    down(wire, "a", "K a 2 60000"); // already
    wait(wire, "app:inbox:1", "K 2 60000 15000 app:inbox:1"); // closed
    state(wire);
    down(wire, "b", "K b 2 60000");
    wait(wire, "", "K 2 60000 15000 ''"); // open
    state(wire);
    wire.call("latch/delete", Delete { keys }, "K");
    wire.call("latch/delete", Delete { keys }, "K"); // none
}
