//! A semaphore of luagate in tasks of tokio, with its defaults: a lease of 30 s, renewed while it is held. A
//! permit is released by dropping it.

use luagate::aio::{Gate, Permit};
use scenes::Scene;

#[tokio::main]
async fn main() {
    let scene = Scene::of_arguments();
    let gate = Gate::open(&scene.url).await.unwrap();
    let semaphore = gate.semaphore("scene", scene.permits);
    let enter = move |_| {
        let semaphore = semaphore.clone();
        async move { semaphore.acquire().await.unwrap() }
    };
    scene.play_tasks(1, enter, async |permit: Permit| drop(permit)).await;
    gate.close().await.unwrap();
}
