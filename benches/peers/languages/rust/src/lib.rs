//! Runs a scene with threads or tasks: workers acquire, hold and release until the time is over.

use std::io::{BufRead, Write};
use std::sync::Mutex;
use std::time::{Duration, Instant};

#[cfg(feature = "tokio")]
pub mod tasks;

/// The arguments of a program; the README of the folder `peers` describes them.
#[derive(Clone, Debug)]
pub struct Scene {
    pub url: String,
    pub workers: usize,
    pub permits: u32,
    pub hold: Duration,
    pub time: Duration,
    /// Whether each worker takes one turn, then waits for all others; otherwise it asks again at once.
    pub once: bool,
}

impl Scene {
    pub fn of_arguments() -> Scene {
        let arguments: Vec<String> = std::env::args().skip(1).collect();
        let [url, workers, permits, hold_us, seconds, turns] = &arguments[..] else {
            panic!("URL WORKERS PERMITS HOLD_US SECONDS TURNS, not {arguments:?}")
        };
        Scene {
            url: url.clone(),
            workers: workers.parse().unwrap(),
            permits: permits.parse().unwrap(),
            hold: Duration::from_micros(hold_us.parse().unwrap()),
            time: Duration::from_secs_f64(seconds.parse().unwrap()),
            once: turns == "once",
        }
    }

    /// Runs the scene with a thread for each worker. `enter` receives the number of a lock, below `locks`.
    pub fn play<P>(&self, locks: usize, enter: impl Fn(usize) -> P + Sync, leave: impl Fn(P) + Sync) {
        let log = Log::for_time(self.time);
        let work = || {
            let mut stays = Vec::new();
            while stays.is_empty() || log.goes_on() && !self.once {
                let (lock, asked) = (fastrand::usize(..locks), log.now());
                let permit = enter(lock);
                let entered = log.now();
                if !self.hold.is_zero() {
                    std::thread::sleep(self.hold);
                }
                stays.push([lock as u64, asked, entered, log.now()]);
                leave(permit);
            }
            log.add(stays);
        };
        while log.goes_on() {
            std::thread::scope(|scope| (0..self.workers).for_each(|_| drop(scope.spawn(work))));
        }
        log.print();
    }
}

/// The stays of all workers: lock, asked, entered and left, in µs since the start.
struct Log {
    start: Instant,
    time: Duration,
    stays: Mutex<Vec<[u64; 4]>>,
}

impl Log {
    /// Prints that the program is ready, and waits for the line that starts the scene.
    fn for_time(time: Duration) -> Log {
        println!("ready");
        std::io::stdin().lock().read_line(&mut String::new()).unwrap();
        Log { start: Instant::now(), time, stays: Mutex::default() }
    }

    fn now(&self) -> u64 {
        self.start.elapsed().as_micros() as u64
    }

    fn goes_on(&self) -> bool {
        self.start.elapsed() < self.time
    }

    fn add(&self, stays: Vec<[u64; 4]>) {
        self.stays.lock().unwrap().extend(stays);
    }

    fn print(&self) {
        // `Debug` prints an array of numbers as JSON does.
        let mut out = std::io::stdout().lock();
        writeln!(out, "{{\"stays\":{:?}}}", self.stays.lock().unwrap()).unwrap();
    }
}
