//! How a gate connects to its servers: connections, permissions and secrets, replicas, clusters, sentinels
//! and TLS.

#[path = "../support/mod.rs"]
mod support;
#[cfg(feature = "tls")]
#[path = "../support/tls_server.rs"]
mod tls_server;

mod acl;
mod addresses;
mod cluster;
mod cluster_scripts;
mod connections;
mod credentials;
mod min_replicas;
mod names;
mod packets;
mod secrets;
mod sentinel;
mod sockets;
#[cfg(feature = "tls")]
mod tls;

#[test]
fn process_of_a_test() {
    let Some((job, arguments)) = support::job() else {
        return;
    };
    match job.as_str() {
        support::workers::NAME => support::workers::work(&arguments),
        #[cfg(target_os = "linux")]
        "away" => cluster::wait_while_releases_are_pending(),
        "fail" => secrets::fail(&arguments),
        "names" => names::run(&arguments),
        #[cfg(feature = "tls")]
        "open" => tls::open(&arguments),
        other => panic!("unknown job {other}"),
    }
}
