//! Promise: whatever the network does to calls and replies, nobody is let in too many, nothing is granted twice or lost for
//! ever, and once it works again everybody is served.

mod support;

use support::crew::{self, Crew};
use support::proxy::Proxy;
use support::{Server, kill_connections};

#[test]
fn process_of_a_test() {
    crew::work();
}

#[test]
fn a_proxy_delays_cuts_and_swallows() {
    let server = own!(Server::private_tcp(&[]));
    let proxy = Proxy::new(&server);
    let crew = Crew::new(&server, &proxy.url, 6);
    let seed = crew::seed();
    println!("harm by seed {seed}");
    proxy.do_harm(seed);
    for _ in 0..10 {
        crew.goes_on(20);
    }
    let harmed = proxy.behave();
    assert!(harmed > 20, "{harmed} connections came to harm");
    crew.finish(&server, &crew::broken_connections());
}

#[test]
fn replies_are_lost_after_the_server_ran_the_script() {
    let server = own!(Server::private_tcp(&[]));
    let proxy = Proxy::new(&server);
    let crew = Crew::new(&server, &proxy.url, 6);
    for count in 1..=30 {
        proxy.lose_replies(count % 4);
        support::eventually("they are lost", || proxy.is_done().then_some(()));
        crew.goes_on(5);
    }
    crew.finish(&server, &crew::broken_connections());
}

#[test]
fn connections_go_silent() {
    let server = own!(Server::private_tcp(&[]));
    let proxy = Proxy::new(&server);
    let crew = Crew::new(&server, &proxy.url, 6);
    for _ in 0..2 {
        proxy.go_silent();
        crew.goes_on(20);
    }
    crew.finish(&server, &crew::broken_connections());
}

#[test]
fn subscribers_and_callers_are_cut_off_all_the_time() {
    let server = own!(Server::private(&[]));
    let crew = Crew::new(&server, &server.url, 6);
    let mut con = server.connection();
    for round in 0..50 {
        kill_connections(&mut con, if round % 2 == 0 { "pubsub" } else { "normal" });
        crew.goes_on(3);
    }
    crew.finish(&server, &crew::broken_connections());
}
