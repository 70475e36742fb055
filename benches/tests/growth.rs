//! Promise: the memory of a gate does not grow with the number of waits that were cancelled. This program
//! counts its live bytes, so no other test runs in it.

use luagate::{Gate, Semaphore};
use luagate_benches::server::{SOON, Server, within};
use peak_alloc::PeakAlloc;
use tokio::task::JoinSet;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

const GATES: usize = 4;
const WAITS: usize = 100_000;
/// How many wait at the same time.
const BATCH: usize = 500;

/// What may stay, and what the waits of one batch may need meanwhile, in bytes.
const STAYS: usize = 2_000_000;
const MEANWHILE: usize = 16_000_000;

/// Tasks that wait in line or have just asked, and are aborted.
async fn cancel_waits(semaphore: &Semaphore, seen: &Semaphore) {
    let mut tasks = JoinSet::new();
    for _ in 0..BATCH {
        let semaphore = semaphore.clone();
        tasks.spawn(async move { drop(semaphore.acquire_async().await) });
    }
    let half = || (seen.inspect().unwrap().waiter_count >= BATCH as u64 / 2).then_some(());
    assert!(within(SOON, half).is_some(), "they do not wait: {:?}", seen.inspect());
    tasks.shutdown().await;
}

#[test]
fn a_gate_forgets_a_cancelled_wait_when_its_release_is_confirmed() {
    let server = Server::any();
    let seen = server.gate().semaphore("s", 1);
    let _held = seen.acquire().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        let mut gates = Vec::new();
        for _ in 0..GATES {
            // On a busy machine many tasks wait longer than the default for replies.
            let builder = Gate::builder(&server.url).prefix(&server.prefix).read_timeout(SOON);
            gates.push(builder.open_async().await.unwrap());
        }
        let mut before = None;
        for (number, gate) in gates.iter().cycle().take(GATES + WAITS / BATCH).enumerate() {
            if number == GATES {
                MEMORY.reset_peak_usage();
                before = Some(MEMORY.current_usage()); // each gate has what it keeps once
            }
            cancel_waits(&gate.semaphore("s", 1), &seen).await;
            gate.flush_async().await.unwrap();
            let Some(before) = before else { continue };
            let (now, peak) = (MEMORY.current_usage(), MEMORY.peak_usage());
            let waits = (number - GATES + 1) * BATCH;
            assert!(now < before + STAYS, "after {waits} waits {} bytes more stay", now - before);
            assert!(peak < before + MEANWHILE, "up to {waits} waits needed {} bytes more", peak - before);
        }
    });
    assert_eq!(seen.inspect().unwrap().waiter_count, 0);
}
