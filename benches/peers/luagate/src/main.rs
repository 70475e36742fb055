//! A semaphore of luagate with its defaults: a lease of 30 s, renewed while it is held. A permit is released
//! by dropping it.

use luagate::{Gate, Permit};
use scenes::Scene;

fn main() {
    let scene = Scene::of_arguments();
    let gate = Gate::open(&scene.url).unwrap();
    let semaphore = gate.semaphore("scene", scene.permits);
    scene.play(1, |_| semaphore.acquire().unwrap(), drop::<Permit>);
    gate.flush().unwrap();
}
