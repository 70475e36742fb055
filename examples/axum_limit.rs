//! A web service on axum that works on five requests of an account at a time, over all its instances. The sixth request
//! gets an answer with the time at which to retry, or waits in line.
//!
//! ```sh
//! cargo run --example axum_limit -- 127.0.0.1:3000   # REDIS_URL is the address of the Redis server
//! curl -i 'http://127.0.0.1:3000/work/17'         # 200, or at once 429 with Retry-After
//! curl -i 'http://127.0.0.1:3000/work/17?wait'    # waits in line for at most 2 s
//! ```
//!
//! Start it twice with different ports: the limit is for both together. WORK_MS and WAIT_MS are the duration of the work
//! and the longest wait, in milliseconds.

use axum::Router;
use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use axum::http::header::RETRY_AFTER;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use luagate::Error;
use luagate::Gate;
use std::env;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::mpsc::{self, Sender};

/// What each request needs. Clones are cheap and share the connection of the gate.
#[derive(Clone)]
struct Service {
    gate: Gate,
    work: Duration,
    wait: Duration,
    /// Dropped with the request, after its permit.
    _active: Sender<()>,
}

/// Works on a request of `account`, if fewer than five are active. Its permit is released on each way out. If the client
/// disconnects, axum drops this future. Then a waiting request leaves the line, and a working one releases its permit.
async fn work_on(service: &Service, account: &str, waits: bool) -> Result<String, Error> {
    let requests = service.gate.semaphore(&format!("account:{account}"), 5);
    let permit = if waits {
        requests.max_waiting(20).acquire_timeout_async(service.wait).await?
    } else {
        requests.try_acquire_async().await?
    };
    tokio::select! {
        report = report(account, permit.fence(), service.work) => Ok(report),
        // Another request may have its permit now, so the work ends.
        lost = permit.lost_async() => Err(Error::Lost(lost)),
    }
}

/// The work: a call of another service. It passes the fence on, which identifies the permit in the logs of both services.
/// With a limit of 1, the other service can also refuse a fence that is lower than the last one.
async fn report(account: &str, fence: u64, work: Duration) -> String {
    tokio::time::sleep(work).await;
    format!("the report of account {account}, made under fence {fence}\n")
}

async fn answer(State(service): State<Service>, Path(account): Path<String>, RawQuery(query): RawQuery) -> Response {
    match work_on(&service, &account, query.as_deref() == Some("wait")).await {
        Ok(report) => report.into_response(),
        Err(Error::Denied(denied) | Error::TimedOut(denied) | Error::LineFull(denied)) => {
            // Estimated from the duration of the work. `denied.next_expiry` would be too late: most permits are released
            // long before their leases end.
            let after = denied.retry_after(service.work);
            let seconds = after.as_millis().div_ceil(1_000); // the header has whole seconds, here at least 1
            let text = format!("busy, try again in {seconds} s\n");
            (StatusCode::TOO_MANY_REQUESTS, [(RETRY_AFTER, seconds.to_string())], text).into_response()
        }
        // The client sent an account that is not a valid name: it has white space, or is far too long.
        Err(Error::Invalid(why)) => (StatusCode::BAD_REQUEST, format!("{why}\n")).into_response(),
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")).into_response(),
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = env::args().nth(1).unwrap_or_else(|| "127.0.0.1:3000".to_owned());
    let url = env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1/".to_owned());
    // One gate for the whole process. All instances of a service share a prefix.
    let gate = Gate::builder(&url).prefix("example:axum_limit").open_async().await?;
    let (_active, mut all_ended) = mpsc::channel(1);
    let (work, wait) = (setting("WORK_MS", 500)?, setting("WAIT_MS", 2_000)?);
    let service = Service { gate: gate.clone(), work, wait, _active };
    let router = Router::new().route("/work/{account}", get(answer)).with_state(service);
    let listener = TcpListener::bind(&address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, router).with_graceful_shutdown(stopped()).await?; // answers the requests that it has
    all_ended.recv().await; // axum may still have to drop the request of a client that has disconnected
    gate.flush_async().await?; // waits until the server has confirmed the releases of dropped permits
    Ok(())
}

/// A time in milliseconds from the environment.
fn setting(name: &str, default: u64) -> Result<Duration, String> {
    let ms = match env::var(name) {
        Ok(text) => text.parse().map_err(|_| format!("{name}: got {text:?}. Accepted: a number of milliseconds"))?,
        Err(_) => default,
    };
    Ok(Duration::from_millis(ms))
}

/// Returns when the service must stop: at Ctrl-C, and on Unix at SIGTERM too.
async fn stopped() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        if let Ok(mut terminated) = signal(SignalKind::terminate()) {
            tokio::select! {
                _ = terminated.recv() => {}
                _ = tokio::signal::ctrl_c() => {}
            }
            return;
        }
    }
    let _ = tokio::signal::ctrl_c().await;
}
