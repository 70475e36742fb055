use super::*;
use crate::clock::Clock;
use crate::transport::Timeouts;
use std::net::TcpListener;
use std::sync::mpsc::channel;

const SOON: Duration = Duration::from_secs(10);

/// A node that accepts connections and never answers.
fn silent_node() -> TcpListener {
    let node = TcpListener::bind("127.0.0.1:0").unwrap();
    node.set_nonblocking(true).unwrap();
    node
}

/// A cluster of these two nodes. The second has all slots; the first has just failed.
fn cluster(nodes: &[TcpListener; 2]) -> Cluster {
    let options = PoolOptions {
        clock: Clock::real(),
        counts: Arc::default(),
        timeouts: Timeouts { connect: SOON, read: SOON, write: SOON },
        most: 1,
    };
    let addresses = nodes.each_ref().map(|node| node.local_addr().unwrap());
    let infos = addresses.map(|address| {
        let url = format!("redis://{address}/");
        redis::IntoConnectionInfo::into_connection_info(url).unwrap()
    });
    let cluster = Cluster::new(&infos, options).unwrap();
    let ranges = [(0, 0, 0), (1, 16_383, 1)].map(|(first, last, node)| Range {
        first,
        last,
        host: addresses[node].ip().to_string(),
        port: addresses[node].port(),
    });
    let earlier = Instant::now() - SOON; // so that the slots may be asked for again
    let mut make = |number, at: &NodeAddress| cluster.pool(number, at);
    lock(&cluster.slots).learn(1, ranges.into(), earlier, &mut make).unwrap();
    cluster.doubt(0);
    cluster
}

#[test]
fn a_call_to_another_node_than_the_one_that_failed_asks_that_one_last_and_for_its_own_time_only() {
    let nodes = [silent_node(), silent_node()];
    let cluster = cluster(&nodes);
    let asked = Instant::now();
    let until = asked + Duration::from_millis(30);
    let owner = cluster.owner(b"key", Some(until)).unwrap();
    assert_eq!(owner.node(), 1);
    assert!(asked.elapsed() < REPORTED_WITHIN, "{:?}", asked.elapsed());
    assert!(nodes[1].accept().is_ok(), "it is not asked");
    assert!(nodes[0].accept().is_err(), "the one that failed is asked first");
}

#[test]
fn a_call_whose_node_is_known_does_not_wait_while_another_call_asks() {
    let nodes = [silent_node(), silent_node()];
    let cluster = cluster(&nodes);
    let (sender, found) = channel();
    std::thread::scope(|scope| {
        let another = lock(&cluster.asking);
        scope.spawn(|| {
            let owner = cluster.owner(b"key", None).unwrap();
            let _ = sender.send(owner.node());
        });
        let owner = found.recv_timeout(SOON);
        drop(another);
        assert_eq!(owner, Ok(1));
    });
}
