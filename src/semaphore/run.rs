//! Runs work under a permit, and drops the work when the permit is lost.

use super::Semaphore;
use crate::error::Lost;
use crate::error::run::RunError;
use crate::permit::{Permit, Released};
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

impl Semaphore {
    /// Waits for a permit for at most `timeout`, runs `work` with it, and releases it. If the permit is lost, `work` is
    /// dropped at its next `await`.
    ///
    /// ```no_run
    /// use std::time::Duration;
    ///
    /// # async fn order(fence: u64) {}
    /// # async fn example() -> Result<(), luagate::Error> {
    /// # let gate = luagate::Gate::open_async("redis://127.0.0.1/").await?;
    /// let market = gate.semaphore("market:account:17", 5);
    /// market.run(Duration::from_secs(2), async |permit| order(permit.fence()).await).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`RunError::NotAcquired`] if there was no permit in time; then `work` did not run. [`RunError::Lost`] if the permit
    /// was lost before `work` ended. Then another caller may have held it at the same time, and only the
    /// [fence](Permit::fence) protects what `work` has changed. A release that the server did not confirm is no error: it
    /// continues in the background.
    ///
    /// # Cancel safety
    /// If this is dropped, `work` is dropped, and the permit is released in the background.
    pub async fn run<T>(&self, timeout: Duration, work: impl AsyncFnOnce(&Permit) -> T) -> Result<T, RunError> {
        let permit = self.acquire_timeout_async(timeout).await?;
        let done = {
            let (mut work, mut lost) = (pin!(work(&permit)), pin!(permit.lost()));
            let done = poll_fn(|cx| match work.as_mut().poll(cx) {
                Poll::Ready(done) => Poll::Ready(Ok(done)),
                Poll::Pending => lost.as_mut().poll(cx).map(Err),
            });
            done.await.map_err(RunError::Lost)?
        };
        let lost = Lost { id: permit.id().to_owned() };
        match permit.release_async().await {
            Ok(Released::Gone) => Err(RunError::Lost(lost)),
            Ok(Released::Released) | Err(_) => Ok(done),
        }
    }
}
