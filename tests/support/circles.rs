//! Circles of threads that hand a permit on by dropping it.

use super::Server;
use super::stop::Stop;
use luagate::Gate;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

/// How many threads are in a circle.
const CIRCLE: usize = 4;

/// For each of these names there is a circle of threads. In it every thread takes the only permit as soon as
/// the one before it has dropped it, so many times. All threads use the same gate.
pub fn hand_on(gate: &Gate, names: &[String], rounds: usize) {
    std::thread::scope(|scope| {
        for name in names {
            let semaphore = gate.semaphore(name, 1);
            let (senders, receivers): (Vec<_>, Vec<_>) = (0..CIRCLE).map(|_| sync_channel(1)).unzip();
            senders[0].send(()).unwrap();
            for (number, dropped) in receivers.into_iter().enumerate() {
                let (semaphore, next) = (semaphore.clone(), senders[(number + 1) % CIRCLE].clone());
                scope.spawn(move || {
                    for _ in 0..rounds {
                        if dropped.recv().is_err() {
                            break; // another thread of the circle has failed
                        }
                        drop(semaphore.try_acquire().unwrap());
                        let _ = next.send(()); // at the end nobody is left
                    }
                });
            }
        }
    });
}

/// Runs `work` while the server loses its scripts again and again.
pub fn while_scripts_are_lost(server: &Server, work: impl FnOnce()) {
    let stop = Stop::default();
    std::thread::scope(|scope| {
        let _stop = stop.at_end();
        scope.spawn(|| {
            let mut con = server.connection();
            while !stop.is_set() {
                redis::cmd("SCRIPT").arg("FLUSH").exec(&mut con).unwrap();
                std::thread::sleep(Duration::from_millis(1)); // other calls get their turn
            }
        });
        work();
    });
}
