//! The scenes that each peer runs.

use std::time::Duration;

#[derive(Debug)]
pub struct Scene {
    pub name: &'static str,
    pub title: &'static str,
    pub workers: u32,
    pub permits: u32,
    pub hold: Duration,
    /// Whether each worker takes one turn, then waits for all others; otherwise it asks again at once.
    pub once: bool,
}

const HOLD: Duration = Duration::from_millis(1);

pub const SCENES: [Scene; 3] = [
    Scene {
        name: "uncontended",
        title: "Uncontended: one thread acquires and releases",
        workers: 1,
        permits: 1,
        hold: Duration::ZERO,
        once: false,
    },
    Scene {
        name: "50 on 5",
        title: "50 workers on 5 permits: each holds for 1 ms, then asks again at once",
        workers: 50,
        permits: 5,
        hold: HOLD,
        once: false,
    },
    Scene {
        name: "200 on 1",
        title: "200 workers on 1 permit: all ask at the same time, each holds once for 1 ms, then all ask again",
        workers: 200,
        permits: 1,
        hold: HOLD,
        once: true,
    },
];

impl Scene {
    /// The arguments of a program after the URL.
    pub fn arguments(&self, time: Duration) -> [String; 5] {
        [
            self.workers.to_string(),
            self.permits.to_string(),
            self.hold.as_micros().to_string(),
            time.as_secs_f64().to_string(),
            if self.once { "once" } else { "again" }.to_owned(),
        ]
    }
}
