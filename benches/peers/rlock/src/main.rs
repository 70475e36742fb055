//! A mutex of rlock with its defaults: a lease of 10 s, renewed while it is held, and a retry every 100 ms.

use rlock::async_lock::{RLock, RLockGuard};
use scenes::Scene;
use std::sync::Arc;

#[tokio::main]
async fn main() {
    let scene = Scene::of_arguments();
    let rlock = Arc::new(RLock::new(&*scene.url).await.unwrap());
    let locks = scene.permits as usize;
    let enter = move |lock: usize| {
        let rlock = rlock.clone();
        async move { rlock.acquire_mutex(format!("locks:{lock}")).await.unwrap() }
    };
    let leave = |mut guard: RLockGuard| async move { guard.release().await.unwrap() };
    scene.play_tasks(locks, enter, leave).await;
}
