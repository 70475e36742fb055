//! A lock of rslock on one server, with its defaults: three tries, up to 200 ms apart, then an error. The
//! program then asks again.

use rslock::{LockError, LockGuard, LockManager};
use scenes::Scene;
use std::time::Duration;

const LEASE: Duration = Duration::from_secs(30);

async fn acquire(manager: LockManager, lock: usize) -> LockGuard {
    loop {
        match manager.acquire(format!("lock:{lock}").as_str(), LEASE).await {
            Ok(guard) => return guard,
            Err(LockError::Unavailable) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

#[tokio::main]
async fn main() {
    let scene = Scene::of_arguments();
    let manager = LockManager::new(vec![&*scene.url]);
    let locks = scene.permits as usize;
    let enter = move |lock| acquire(manager.clone(), lock);
    let leave = |guard: LockGuard| guard.release();
    scene.play_tasks(locks, enter, leave).await;
}
