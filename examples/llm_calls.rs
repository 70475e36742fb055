//! Calls of a language model whose provider permits eight at the same time. All processes share the limit.
//! Users go before batches, and batches still make progress.
//!
//! ```sh
//! seq 100 | cargo run --example llm_calls -- batch         # REDIS_URL is the address of the server
//! echo 'Who is next?' | cargo run --example llm_calls -- user
//! ```
//!
//! Each line of the input is a prompt. A user's call has a head start of a minute: it goes before all batch
//! calls that came in the last minute, but never before one that has waited for longer. CALL_MS is the
//! duration of a call in milliseconds.

use luagate::errors::{AcquireError, RunError};
use luagate::{Gate, Semaphore};
use std::env;
use std::error::Error;
use std::time::Duration;
use tokio::task::JoinSet;

/// The client of the provider. Clones share the limit.
#[derive(Clone)]
struct Model {
    calls: Semaphore,
    time: Duration,
}

impl Model {
    /// A user waits for the answer: for 10 s, or not at all if 50 calls are in line before this one.
    async fn answer_user(&self, prompt: &str) -> Result<String, RunError> {
        let calls = self.calls.clone().head_start(Duration::from_secs(60)).max_waiting(50);
        self.call(&calls, Duration::from_secs(10), prompt).await
    }

    /// Nobody waits: in line for up to a day.
    async fn answer_batch(&self, prompt: &str) -> Result<String, RunError> {
        self.call(&self.calls, Duration::from_secs(24 * 3_600), prompt).await
    }

    /// If the permit is lost, the call is dropped at its next `await`. Another caller has its place then.
    async fn call(&self, calls: &Semaphore, wait: Duration, prompt: &str) -> Result<String, RunError> {
        let call = calls.run_async(wait, async |permit| {
            println!("call {} begins: {prompt}", permit.fence());
            tokio::time::sleep(self.time).await; // the request to the provider
            println!("call {} ends: {prompt}", permit.fence());
            format!("the answer to {prompt:?}")
        });
        call.await
    }

    /// The text for the user, or for the log of the batch.
    async fn answer(self, is_user: bool, prompt: String) -> Result<String, String> {
        let answer = if is_user { self.answer_user(&prompt).await } else { self.answer_batch(&prompt).await };
        answer.map_err(|why| match why {
            RunError::NotAcquired(AcquireError::TimedOut(denied) | AcquireError::LineFull(denied)) => {
                let seconds = denied.retry_after(self.time).as_secs_f64().ceil();
                format!("{prompt}: the model is busy, try again in {seconds} s")
            }
            why => format!("{prompt}: {why}"),
        })
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let is_user = match env::args().nth(1).as_deref() {
        Some("user") => true,
        Some("batch") => false,
        other => return Err(format!("got {other:?}. Accepted: user, batch").into()),
    };
    let url = env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1/".to_owned());
    let time = Duration::from_millis(env::var("CALL_MS").unwrap_or_else(|_| "1000".to_owned()).parse()?);
    let gate = Gate::builder(&url).label(if is_user { "user" } else { "batch" }).open_async().await?;
    let model = Model { calls: gate.semaphore("model:calls", 8), time };
    let (mut answers, mut failed) = (JoinSet::new(), 0);
    for prompt in std::io::stdin().lines() {
        answers.spawn(model.clone().answer(is_user, prompt?));
    }
    loop {
        tokio::select! {
            answer = answers.join_next() => match answer.transpose()? {
                Some(Ok(answer)) => println!("{answer}"),
                Some(Err(why)) => (failed, _) = (failed + 1, eprintln!("{why}")),
                None => break,
            },
            _ = tokio::signal::ctrl_c() => break,
        }
    }
    answers.shutdown().await; // dropped calls leave the line or release their permits
    gate.flush_async().await?; // waits until the server has confirmed this
    if failed > 0 { Err(format!("{failed} prompts have no answer").into()) } else { Ok(()) }
}
