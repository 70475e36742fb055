//! Promise: dropping a permit never blocks and never panics, wherever it is dropped. The permit is released
//! while the gate's task runs, and otherwise ends with its lease.

use crate::support::proxy::Proxy;
use crate::support::{SOON, Server, eventually};
use crate::{own, runtime};
use luagate::{Gate, Lease, Semaphore};
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};

/// More than a drop takes on a busy machine, and less than the time for which the gate waits for a reply.
const AT_ONCE: Duration = Duration::from_secs(5);

fn semaphore(server: &Server, runtime: &Runtime) -> Semaphore {
    runtime.block_on(crate::gate(server)).semaphore("s", 1)
}

#[track_caller]
fn assert_free(server: &Server) {
    let seen = server.gate().semaphore("s", 1);
    eventually("it is free", || (seen.inspect().unwrap().holder_count == 0).then_some(()));
}

#[test]
fn a_permit_that_is_dropped_outside_a_runtime_is_released() {
    let (server, runtime) = (Server::any(), runtime());
    let permit = runtime.block_on(semaphore(&server, &runtime).acquire_async()).unwrap();
    std::thread::spawn(move || drop(permit)).join().unwrap();
    assert_free(&server);
}

#[test]
fn a_drop_does_not_wait_for_a_server_that_does_not_answer() {
    let mut server = own!(Server::private(&[]));
    let runtime = runtime();
    let permit = runtime.block_on(semaphore(&server, &runtime).acquire_async()).unwrap();
    server.pause();
    let begun = Instant::now();
    drop(permit);
    assert!(begun.elapsed() < AT_ONCE, "it took {:?}", begun.elapsed());
    server.resume();
    assert_free(&server);
}

#[test]
fn a_dropped_permit_is_released_on_another_connection_if_the_first_one_stays_silent() {
    let server = own!(Server::private_tcp(&[]));
    let (proxy, runtime) = (Proxy::new(&server), runtime());
    let permit = runtime.block_on(async {
        let builder =
            Gate::builder(&proxy.url).prefix(&server.prefix).read_timeout(Duration::from_millis(500));
        builder.open_async().await.unwrap().semaphore("s", 1).acquire_async().await.unwrap()
    });
    proxy.go_silent(); // an attempt on the present connection is never answered
    drop(permit);
    assert_free(&server); // long before its lease ends
}

#[test]
fn a_permit_that_is_dropped_after_the_end_of_its_runtime_ends_with_its_lease() {
    let (server, first) = (Server::any(), runtime());
    let semaphore = semaphore(&server, &first).lease(Lease::fixed(Duration::from_millis(700)));
    let permit = first.block_on(semaphore.acquire_async()).unwrap();
    drop(first);
    drop(permit);
    assert_free(&server);
}

#[test]
fn a_gate_works_in_the_next_runtime() {
    let (server, first) = (Server::any(), runtime());
    let semaphore = semaphore(&server, &first);
    let permit = first.block_on(semaphore.acquire_async()).unwrap();
    drop(first);
    drop(permit); // outside a runtime: the next runtime releases it
    let next = runtime();
    let permit = next.block_on(semaphore.acquire_timeout_async(SOON)).unwrap();
    assert!(!permit.is_lost());
    drop(permit);
    assert_free(&server);
}

#[test]
fn a_permit_that_is_dropped_by_a_panic_is_released() {
    let (server, runtime) = (Server::any(), runtime());
    let semaphore = semaphore(&server, &runtime);
    let task = runtime.spawn(async move {
        let _permit = semaphore.acquire_async().await.unwrap();
        panic!("this panic is part of the test");
    });
    assert!(runtime.block_on(task).unwrap_err().is_panic());
    assert_free(&server);
}

#[test]
fn permits_of_tasks_that_are_aborted_at_shutdown_neither_hang_nor_panic() {
    let server = Server::any();
    let runtime = runtime();
    let semaphore =
        runtime.block_on(crate::gate(&server)).semaphore("s", 1).lease(Lease::fixed(Duration::from_secs(1)));
    let (held, is_held) = std::sync::mpsc::channel();
    for _ in 0..10 {
        let (semaphore, held) = (semaphore.clone(), held.clone());
        runtime.spawn(async move {
            let _permit = semaphore.acquire_async().await;
            let _ = held.send(());
            std::future::pending::<()>().await;
        });
    }
    is_held.recv_timeout(SOON).unwrap();
    let begun = Instant::now();
    drop(runtime);
    drop(semaphore);
    assert!(begun.elapsed() < AT_ONCE, "the shutdown took {:?}", begun.elapsed());
    assert_free(&server);
}

#[test]
fn on_one_thread_a_permit_that_is_dropped_is_released_before_the_gate_is_closed() {
    let server = Server::any();
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let gate = crate::gate(&server).await;
        for _ in 0..10 {
            drop(gate.semaphore("s", 1).acquire_timeout_async(SOON).await.unwrap());
        }
        gate.flush_async().await.unwrap();
    });
    drop(runtime);
    assert_eq!(server.gate().semaphore("s", 1).inspect().unwrap().holder_count, 0);
}

#[test]
fn closing_a_gate_without_a_server_ends_when_the_leases_have_ended() {
    let mut server = own!(Server::private(&[]));
    runtime().block_on(async {
        let builder =
            Gate::builder(&server.url).prefix(&server.prefix).read_timeout(Duration::from_millis(500));
        let gate = builder.open_async().await.unwrap();
        let permit = gate
            .semaphore("s", 1)
            .lease(Lease::fixed(Duration::from_millis(300)))
            .acquire_async()
            .await
            .unwrap();
        server.kill();
        drop(permit);
        tokio::time::timeout(SOON, gate.flush_async()).await.unwrap().unwrap();
    });
}
