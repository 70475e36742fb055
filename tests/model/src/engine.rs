//! Files of the library. Its locks, threads and clock are those of the model.

#[path = "../../../src/engine/connection.rs"]
pub(crate) mod connection;
#[path = "../../../src/engine/ending.rs"]
pub(crate) mod ending;
#[path = "../../../src/engine/mode.rs"]
pub(crate) mod mode;
#[path = "../../../src/engine/packets.rs"]
pub(crate) mod packets;
#[path = "../../../src/engine/reader.rs"]
pub(crate) mod reader;
#[path = "../../../src/engine/reading.rs"]
pub(crate) mod reading;
#[path = "../../../src/engine/silence.rs"]
pub(crate) mod silence;
#[path = "../../../src/engine/slot.rs"]
pub(crate) mod slot;
#[path = "../../../src/engine/state.rs"]
pub(crate) mod state;
#[path = "../../../src/engine/stream.rs"]
pub(crate) mod stream;
#[path = "../../../src/engine/worker.rs"]
pub(crate) mod worker;
#[path = "../../../src/engine/writing.rs"]
pub(crate) mod writing;
