//! Promise: the holder of a permit learns of its loss, and work under a permit ends with it.

use crate::support::{SOON, Server};
use crate::{own, runtime};
use luagate::Lease;
use luagate::errors::RunError;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::time::timeout;

#[test]
fn lost_returns_when_the_lease_ends() {
    let server = Server::any();
    runtime().block_on(async {
        let lease = Duration::from_millis(300);
        let semaphore = crate::gate(&server).await.semaphore("s", 1).lease(Lease::fixed(lease));
        let permit = semaphore.acquire_async().await.unwrap();
        let lost = timeout(SOON, permit.lost_async()).await.unwrap();
        assert_eq!(lost.id, permit.id());
        assert!(permit.is_lost());
        timeout(SOON, permit.lost_async()).await.unwrap(); // it stays lost
    });
}

#[test]
fn lost_returns_when_a_refresh_finds_that_the_permit_was_revoked() {
    let server = Server::any();
    runtime().block_on(async {
        let semaphore = crate::gate(&server).await.semaphore("s", 1);
        let permit = Arc::new(semaphore.acquire_async().await.unwrap());
        let waiting = tokio::spawn({
            let permit = permit.clone();
            async move { permit.lost_async().await }
        });
        semaphore.revoke_async(permit.id()).await.unwrap();
        assert!(permit.refresh_async().await.is_err());
        timeout(SOON, waiting).await.unwrap().unwrap();
    });
}

#[test]
fn lost_does_not_return_while_the_permit_is_renewed() {
    let server = Server::any();
    runtime().block_on(async {
        let lease = Duration::from_millis(1_500);
        let semaphore = crate::gate(&server).await.semaphore("s", 1).lease(Lease::renewed(lease));
        let permit = semaphore.acquire_async().await.unwrap();
        assert!(timeout(3 * lease, permit.lost_async()).await.is_err());
        permit.release_async().await.unwrap();
    });
}

/// Records that it was dropped.
struct Dropped(Arc<AtomicBool>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn run_drops_the_work_before_the_server_can_grant_the_permit_to_another() {
    let mut server = own!(Server::private(&[]));
    runtime().block_on(async {
        let semaphore =
            crate::gate(&server).await.semaphore("s", 1).lease(Lease::renewed(Duration::from_millis(600)));
        let is_dropped = Arc::new(AtomicBool::new(false));
        let dropped = Dropped(is_dropped.clone());
        let begun = Instant::now();
        server.pause();
        server.resume();
        let result = semaphore
            .run_async(SOON, async |permit| {
                server.pause();
                let _dropped = dropped;
                assert!(!permit.is_lost());
                std::future::pending::<()>().await
            })
            .await;
        assert!(matches!(result, Err(RunError::Lost(_))), "{result:?}");
        assert!(is_dropped.load(Ordering::SeqCst) && begun.elapsed() < SOON);
        server.resume();
    });
}

#[test]
fn run_returns_the_result_of_the_work_and_releases() {
    let server = Server::any();
    runtime().block_on(async {
        let semaphore = crate::gate(&server).await.semaphore("s", 1);
        let work = tokio::spawn({
            let semaphore = semaphore.clone();
            async move { semaphore.run_async(SOON, async |permit| permit.fence()).await }
        });
        let fence = work.await.unwrap().unwrap();
        assert!(semaphore.try_acquire_async().await.unwrap().fence() > fence);
        let _held = semaphore.acquire_timeout_async(SOON).await.unwrap();
        let refused =
            semaphore.run_async(Duration::from_millis(50), async |_| unreachable!("it has no permit")).await;
        assert!(matches!(refused, Err::<(), _>(RunError::NotAcquired(_))), "{refused:?}");
    });
}

#[test]
fn run_reports_a_permit_that_was_revoked_during_the_work() {
    let server = Server::any();
    runtime().block_on(async {
        let semaphore = crate::gate(&server).await.semaphore("s", 1);
        let result = semaphore
            .run_async(SOON, async |permit| {
                semaphore.revoke_async(permit.id()).await.unwrap();
            })
            .await;
        assert!(matches!(result, Err(RunError::Lost(_))), "{result:?}");
    });
}
