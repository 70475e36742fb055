//! Promise: async code works on every executor. A gate that was opened in one runtime works in another one,
//! also after the first has ended, or while it is not driven. Under a paused clock of tokio, all times are
//! real.

use crate::own;
use crate::support::{SOON, Server, eventually};
use luagate::Released;
use luagate::errors::{AcquireError, FailureKind, Lost, RunError};
use luagate::{Gate, Lease, Permit};
use std::pin::Pin;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};

const LEASE: Duration = Duration::from_millis(1_500); // a busy machine renews it late

type Work<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// Its name, and what runs work on it.
type Executor = (&'static str, fn(Work));

/// Each executor: its name, and how it runs a future until it is done.
const EXECUTORS: [Executor; 4] = [
    ("tokio with one thread", |work| one_thread().block_on(work)),
    ("tokio with several threads", |work| crate::runtime().block_on(work)),
    ("smol", |work| smol::block_on(work)),
    ("futures::executor::block_on", |work| futures_executor::block_on(work)),
];

fn one_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

async fn opened(server: &Server) -> Gate {
    crate::gate(server).await
}

/// Uses everything that waits for more than a reply: the line, deadlines, renewals, losses, work under a
/// permit, drops.
async fn uses_everything(gate: &Gate, server: &Server) {
    waits_in_line(gate, server).await;
    is_renewed(gate, server).await;
    learns_of_losses(gate, server).await;
    let dropped = gate.semaphore("dropped", 1);
    drop(dropped.acquire_async().await.unwrap());
    gate.clone().flush_async().await.unwrap();
    assert_eq!(server.gate().semaphore("dropped", 1).inspect().unwrap().in_use, 0);
}

async fn waits_in_line(gate: &Gate, server: &Server) {
    let (semaphore, others) = (gate.semaphore("line", 1), server.gate().semaphore("line", 1));
    let holder = others.try_acquire().unwrap();
    let begun = Instant::now();
    let time = Duration::from_millis(100);
    let late = loop {
        match semaphore.acquire_timeout_async(time).await {
            Err(AcquireError::Unknown(late)) if late.kind() == FailureKind::TimedOut => {} // the machine is loaded
            ended => break ended,
        }
    };
    assert!(matches!(late, Err(AcquireError::TimedOut(_))), "{late:?}");
    assert!(begun.elapsed() >= time, "its time was over after {:?}", begun.elapsed());
    let releases = std::thread::spawn(move || {
        eventually("it is in line", || (others.inspect().unwrap().waiter_count == 1).then_some(()));
        holder.release().unwrap();
    });
    let permit = semaphore.acquire_timeout_async(SOON).await.unwrap();
    releases.join().unwrap();
    assert_eq!(permit.release_async().await.unwrap(), Released::Released);
}

async fn is_renewed(gate: &Gate, server: &Server) {
    let permit = gate.semaphore("renewed", 1).lease(Lease::renewed(LEASE)).acquire_async().await.unwrap();
    std::thread::sleep(2 * LEASE); // meanwhile nobody drives the executor
    assert_held(&permit, server, "renewed");
    permit.refresh_async().await.unwrap();
    permit.release_async().await.unwrap();
}

fn assert_held(permit: &Permit, server: &Server, name: &str) {
    let holders = server.gate().semaphore(name, 1).inspect().unwrap().holders;
    assert!(!permit.is_lost() && holders[0].fence == permit.fence(), "{permit}: {holders:?}");
}

async fn learns_of_losses(gate: &Gate, server: &Server) {
    let (sender, losses) = channel();
    let ends = gate
        .semaphore("ends", 1)
        .lease(Lease::fixed(LEASE))
        .on_lost(move |lost| sender.send(lost.clone()).unwrap());
    let permit = ends.acquire_async().await.unwrap();
    assert_eq!(permit.lost_async().await.id, permit.id());
    assert_reported(&losses, &permit);
    let revoked = gate.semaphore("revoked", 1).lease(Lease::renewed(LEASE));
    let result = revoked
        .run_async(SOON, async |permit| {
            server.gate().semaphore("revoked", 1).revoke(permit.id()).unwrap();
            std::future::pending::<()>().await
        })
        .await;
    assert!(matches!(result, Err(RunError::Lost(_))), "{result:?}");
}

fn assert_reported(losses: &Receiver<Lost>, permit: &Permit) {
    assert_eq!(losses.recv_timeout(SOON).unwrap().id, permit.id());
}

#[test]
fn everything_works_on_every_executor() {
    for (name, run) in EXECUTORS {
        println!("{name}");
        let server = Server::any();
        run(Box::pin(async {
            let gate = opened(&server).await;
            uses_everything(&gate, &server).await;
        }));
    }
}

#[test]
fn a_gate_whose_runtime_has_ended_works_on_every_executor() {
    for (name, run) in EXECUTORS {
        for first in [one_thread(), crate::runtime()] {
            println!("{name}");
            let server = Server::any();
            let gate = first.block_on(opened(&server));
            drop(first);
            run(Box::pin(uses_everything(&gate, &server)));
        }
    }
}

#[test]
fn a_gate_whose_runtime_is_not_driven_works_on_every_executor() {
    for (name, run) in EXECUTORS {
        println!("{name}");
        let (server, first) = (Server::any(), one_thread());
        let gate = first.block_on(opened(&server));
        run(Box::pin(uses_everything(&gate, &server)));
    }
}

#[test]
fn a_permit_whose_runtime_has_ended_is_renewed_and_its_loss_is_reported_to_another_runtime() {
    for (name, run) in EXECUTORS {
        println!("{name}");
        let (server, first) = (Server::any(), crate::runtime());
        let (sender, losses) = channel();
        let gate = first.block_on(opened(&server));
        let semaphore = gate.semaphore("s", 1).lease(Lease::renewed(LEASE));
        let semaphore = semaphore.on_lost(move |lost| sender.send(lost.clone()).unwrap());
        let permit = first.block_on(semaphore.acquire_async()).unwrap();
        drop(first);
        std::thread::sleep(2 * LEASE);
        assert_held(&permit, &server, "s");
        server.gate().semaphore("s", 1).revoke(permit.id()).unwrap();
        run(Box::pin(async {
            assert_eq!(permit.lost_async().await.id, permit.id());
            assert_reported(&losses, &permit);
        }));
    }
}

#[test]
fn a_drop_after_the_end_of_the_runtime_releases_and_close_waits_for_it_in_another_one() {
    for (name, run) in EXECUTORS {
        println!("{name}");
        let (server, first) = (Server::any(), crate::runtime());
        let gate = first.block_on(opened(&server));
        let permit = first.block_on(gate.semaphore("s", 1).acquire_async()).unwrap();
        drop(first);
        drop(permit);
        run(Box::pin(async { gate.flush_async().await.unwrap() }));
        assert_eq!(server.gate().semaphore("s", 1).inspect().unwrap().in_use, 0);
    }
}

#[test]
fn while_the_clock_of_tokio_is_paused_all_times_are_real() {
    let server = own!(Server::private(&[]));
    let paused = Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    paused.block_on(async {
        let gate = opened(&server).await;
        uses_everything(&gate, &server).await;
        let permit = gate.semaphore("s", 1).acquire_async().await.unwrap();
        tokio::time::sleep(Duration::from_secs(3_600)).await; // takes no real time
        assert_held(&permit, &server, "s");
        assert!(permit.remaining().is_some_and(|left| left > Duration::from_secs(20)), "{permit}");
    });
}
