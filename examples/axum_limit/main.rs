//! A web service on axum that works on five reports at a time, over all its instances. The limit is a layer
//! of tower, in `limit.rs`, on one route only.
//!
//! ```sh
//! cargo run --example axum_limit -- 127.0.0.1:3000   # REDIS_URL is the address of the Redis server
//! curl -i http://127.0.0.1:3000/report               # 200, or after 2 s in line 429 with Retry-After
//! curl -i http://127.0.0.1:3000/health               # has no limit
//! ```
//!
//! Start it twice with different ports: the limit is for both together. WORK_MS, ROW_MS and WAIT_MS are the
//! duration of the work before the response, of the work for each row of it, and the longest wait, in
//! milliseconds.

mod limit;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::routing::get;
use futures_util::{StreamExt, stream};
use limit::Limit;
use luagate::Gate;
use std::convert::Infallible;
use std::env;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::time::sleep;

/// A report of ten rows. The permit is held until the last row has been sent.
async fn report(State((work, row)): State<(Duration, Duration)>) -> Body {
    sleep(work).await; // in place of a query
    Body::from_stream(stream::iter(1..=10).then(move |number| async move {
        sleep(row).await;
        Ok::<_, Infallible>(format!("row {number}\n"))
    }))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = env::args().nth(1).unwrap_or_else(|| "127.0.0.1:3000".to_owned());
    let url = env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1/".to_owned());
    let (work, row, wait) = (setting("WORK_MS", 500)?, setting("ROW_MS", 50)?, setting("WAIT_MS", 2_000)?);
    // One gate for the whole process. If more than 100 requests wait in line, the next ones get 429 at once.
    let gate = Gate::builder(&url).label("reports").open_async().await?;
    let (limit, mut all_ended) =
        Limit::new(gate.semaphore("report", 5).max_waiting(100), wait, work + 10 * row);
    let router = Router::new()
        .route("/report", get(report).layer(limit))
        .route("/health", get("healthy\n"))
        .with_state((work, row));
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
        Ok(text) => {
            text.parse().map_err(|_| format!("{name}: got {text:?}. Accepted: a number of milliseconds"))?
        }
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
