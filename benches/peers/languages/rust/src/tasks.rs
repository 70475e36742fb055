//! The same with tasks of tokio.

use crate::{Log, Scene};
use std::future::Future;
use std::sync::Arc;

impl Scene {
    /// Runs the scene with a task for each worker. `enter` receives the number of a lock, below `locks`.
    pub async fn play_tasks<P, E, L>(
        self,
        locks: usize,
        enter: impl Fn(usize) -> E + Send + Sync + 'static,
        leave: impl Fn(P) -> L + Send + Sync + 'static,
    ) where
        P: Send + 'static,
        E: Future<Output = P> + Send,
        L: Future<Output = ()> + Send,
    {
        let log = Arc::new(Log::for_time(self.time));
        let (enter, leave) = (Arc::new(enter), Arc::new(leave));
        let (hold, once) = (self.hold, self.once);
        let work = || {
            let (log, enter, leave) = (log.clone(), enter.clone(), leave.clone());
            async move {
                let mut stays = Vec::new();
                while stays.is_empty() || log.goes_on() && !once {
                    let (lock, asked) = (fastrand::usize(..locks), log.now());
                    let permit = enter(lock).await;
                    let entered = log.now();
                    if !hold.is_zero() {
                        // Tokio's timer has a resolution of 1 ms: a task that sleeps for 1 ms could hold for
                        // 2 ms.
                        tokio::task::spawn_blocking(move || std::thread::sleep(hold)).await.unwrap();
                    }
                    stays.push([lock as u64, asked, entered, log.now()]);
                    leave(permit).await;
                }
                log.add(stays);
            }
        };
        while log.goes_on() {
            let workers: Vec<_> = (0..self.workers).map(|_| tokio::spawn(work())).collect();
            for worker in workers {
                worker.await.unwrap();
            }
        }
        log.print();
    }
}
