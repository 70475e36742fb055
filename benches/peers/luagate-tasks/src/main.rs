//! A semaphore of luagate in tasks of tokio, with its defaults: a lease of 30 s, renewed while it is held. A
//! permit is released by dropping it.

use luagate::{Gate, Permit};
use scenes::Scene;

#[tokio::main]
async fn main() {
    let scene = Scene::of_arguments();
    let gate = Gate::open_async(&scene.url).await.unwrap();
    let semaphore = gate.semaphore("scene", scene.permits);
    let enter = move |_| {
        let semaphore = semaphore.clone();
        async move { semaphore.acquire_async().await.unwrap() }
    };
    scene.play_tasks(1, enter, async |permit: Permit| drop(permit)).await;
    gate.flush_async().await.unwrap();
}
