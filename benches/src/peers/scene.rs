//! The scenes that each peer plays.

use std::time::Duration;

#[derive(Debug)]
pub struct Scene {
    pub name: &'static str,
    pub title: &'static str,
    pub workers: u32,
    pub permits: u32,
    pub hold: Duration,
    /// Whether each worker takes one turn, then waits until all have; otherwise it asks again at once.
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
        title: "50 workers on 5 permits: each holds for 1 ms, and asks again at once",
        workers: 50,
        permits: 5,
        hold: HOLD,
        once: false,
    },
    Scene {
        name: "200 on 1",
        title: "200 workers on 1 permit: all come together, each holds for 1 ms, once; then all come again",
        workers: 200,
        permits: 1,
        hold: HOLD,
        once: true,
    },
];

impl Scene {
    /// What a program is told, behind the url.
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
