//! A semaphore of distributed-lock-redis with its defaults: a lease of 30 s, renewed while it is held, and
//! retries after 10 to 200 ms.

use distributed_lock_core::traits::{DistributedSemaphore, LockHandle, SemaphoreProvider};
use distributed_lock_redis::{RedisLockProvider, RedisSemaphoreHandle};
use scenes::Scene;
use std::sync::Arc;

#[tokio::main]
async fn main() {
    let scene = Scene::of_arguments();
    let provider = RedisLockProvider::new(&scene.url).await.unwrap();
    let semaphore = Arc::new(provider.create_semaphore("scene", scene.permits));
    let enter = move |_| {
        let semaphore = semaphore.clone();
        async move { semaphore.acquire(None).await.unwrap() }
    };
    let leave = |handle: RedisSemaphoreHandle| async move { handle.release().await.unwrap() };
    scene.play_tasks(1, enter, leave).await;
}
