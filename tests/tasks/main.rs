//! What only the async forms promise: futures that are dropped or not polled, tasks that share a socket, and
//! drops outside a runtime.

#[path = "../support/mod.rs"]
mod support;

mod callers;
mod cancelling;
mod crowds;
mod dropping;
mod executors;
mod handing_on;
mod loss;
mod messages;
mod program_code;
mod sends;
mod steps;
mod together;
mod unpolled;

use luagate::Gate;
use support::Server;
use tokio::runtime::Runtime;

/// A runtime of several threads.
fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// A gate on this server, under the server's prefix. On a busy machine many tasks wait longer than the
/// default for replies.
async fn gate(server: &Server) -> Gate {
    Gate::builder(&server.url).prefix(&server.prefix).read_timeout(support::SOON).open_async().await.unwrap()
}

#[test]
fn process_of_a_test() {
    let Some((job, arguments)) = support::job() else {
        return;
    };
    match job.as_str() {
        "work" => together::work(&arguments),
        other => panic!("unknown job {other}"),
    }
}
