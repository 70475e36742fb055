use crate::clock::{machine_now, since};
use crate::engine::tests::{Ends, Random, SOON, Server, receive, tcp};
use std::io::{ErrorKind, Read, Write};
use std::time::{Duration, Instant};

/// Runs a test with each kind of connection. `write_timeout`: of the client.
fn with_each(write_timeout: Duration, test: impl Fn(&str, Ends)) {
    test("tcp", tcp(write_timeout));
    #[cfg(unix)]
    test("unix", crate::engine::tests::unix(write_timeout));
    #[cfg(feature = "tls")]
    for (name, version) in [("tls 1.3", &rustls::version::TLS13), ("tls 1.2", &rustls::version::TLS12)] {
        test(name, crate::engine::tls::tests::tls(version, write_timeout));
    }
}

/// Endless bytes that repeat only after a prime number of them.
struct Pattern(Vec<u8>);

impl Pattern {
    const PERIOD: usize = 99_991;

    fn new() -> Pattern {
        let mut random = Random(1);
        let period: Vec<u8> = (0..Pattern::PERIOD).map(|_| random.below(256) as u8).collect();
        Pattern(period.repeat(5))
    }

    /// At most 400,000 of them, beginning `at`.
    fn of(&self, at: usize, count: usize) -> &[u8] {
        &self.0[at % Pattern::PERIOD..][..count]
    }
}

fn is_long() -> bool {
    std::env::var_os("LUAGATE_PROVE").is_some_and(|form| form == "long")
}

/// Returns all that it receives. With TLS 1.3, changes the keys from time to time.
fn echo(name: &str, mut server: Box<dyn Server>) {
    let mut bytes = vec![0; 200_000];
    let mut random = Random(7);
    loop {
        let most = 1 + random.below(200_000) as usize;
        let count = server.read(&mut bytes[..most]).unwrap_or(0);
        if count == 0 {
            return;
        }
        if name == "tls 1.3" && random.below(8) == 0 {
            server.change_keys();
        }
        server.write_all(&bytes[..count]).unwrap();
    }
}

#[test]
fn one_thread_writes_while_another_one_reads_and_no_byte_is_lost() {
    let total: usize = if is_long() { 200_000_000 } else { 10_000_000 };
    let pattern = &Pattern::new();
    with_each(SOON, |name, (stream, server)| {
        let stream = &*stream;
        std::thread::scope(|scope| {
            let server = scope.spawn(|| echo(name, server));
            let writer = scope.spawn(move || {
                let mut sizes = Random(2);
                let mut at = 0;
                while at < total {
                    let most = [30, 3_000, 300_000][sizes.below(3) as usize];
                    let size = (total - at).min(1 + sizes.below(most) as usize);
                    stream.write_all(pattern.of(at, size)).unwrap();
                    at += size;
                }
            });
            let mut bytes = vec![0; 100_000];
            let mut sizes = Random(3);
            let mut at = 0;
            while at < total {
                let most = 1 + sizes.below(100_000) as usize;
                let count = receive(stream, &mut bytes[..most], SOON).unwrap();
                assert_ne!(count, 0, "{name}: closed after {at} bytes");
                assert!(bytes[..count] == *pattern.of(at, count), "{name}: other bytes after {at}");
                at += count;
            }
            writer.join().unwrap();
            stream.shut_down();
            server.join().unwrap();
        });
    });
}

/// Whether a read ended because nothing arrived in time.
fn is_timeout(read: &std::io::Result<usize>) -> bool {
    read.as_ref().is_err_and(|error| matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut))
}

#[test]
fn a_read_ends_in_time_if_nothing_arrives_whatever_the_time_of_the_one_before() {
    with_each(SOON, |name, (stream, mut server)| {
        for milliseconds in [20, 1, 20, 21, 40] {
            server.write_all(b"a").unwrap();
            assert_eq!(receive(&*stream, &mut [0; 10], SOON).unwrap(), 1, "{name}");
            for within in [milliseconds, milliseconds * 2].map(Duration::from_millis) {
                let start = machine_now();
                let read = receive(&*stream, &mut [0; 10], within);
                let took = since(start);
                assert!(is_timeout(&read), "{name}: {read:?}");
                assert!(took >= within && took < SOON / 2, "{name}: {took:?} of {within:?}");
            }
        }
    });
}

#[test]
fn a_read_at_once_takes_what_has_arrived_and_never_blocks() {
    with_each(SOON, |name, (stream, mut server)| {
        let mut bytes = [0; 2];
        server.write_all(b"abcde").unwrap();
        assert_eq!(receive(&*stream, &mut bytes[..1], SOON).unwrap(), 1);
        assert_eq!(bytes[..1], *b"a");
        for expected in [b"bc", b"de"] {
            assert_eq!(stream.read_at_once(&mut bytes).unwrap(), 2, "{name}");
            assert_eq!(bytes, *expected);
        }
        let start = machine_now();
        assert!(is_timeout(&stream.read_at_once(&mut bytes)), "{name}");
        assert!(since(start) < SOON / 2, "{name}: {:?}", since(start));
        server.cut();
        eventually(|| stream.read_at_once(&mut bytes).is_ok_and(|count| count == 0));
    });
}

#[test]
fn reads_and_writes_block_again_after_a_read_at_once() {
    with_each(SOON, |name, (stream, mut server)| {
        let mut bytes = [0; 2];
        assert!(is_timeout(&stream.read_at_once(&mut bytes)), "{name}");
        let (start, within) = (machine_now(), Duration::from_millis(30));
        assert!(is_timeout(&receive(&*stream, &mut bytes, within)));
        assert!(since(start) >= within, "{name}");
        let writer = std::thread::spawn(move || stream.write_all(&vec![0; 20_000_000]));
        let mut received = 0;
        while received < 20_000_000 {
            let count = server.read(&mut vec![0; 100_000]).unwrap();
            assert_ne!(count, 0, "{name}: closed after {received} bytes");
            received += count;
        }
        writer.join().unwrap().unwrap();
    });
}

#[track_caller]
fn eventually(mut condition: impl FnMut() -> bool) {
    let end: Instant = machine_now() + SOON;
    while !condition() {
        assert!(machine_now() < end, "not within {SOON:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_closed_connection_is_noticed_after_the_last_byte_also_without_a_farewell() {
    for in_order in [true, false] {
        with_each(SOON, |name, (stream, mut server)| {
            server.write_all(b"last").unwrap();
            if in_order {
                server.close();
            }
            server.cut();
            let mut bytes = [0; 3];
            assert_eq!(receive(&*stream, &mut bytes, SOON).unwrap(), 3, "{name}");
            assert_eq!(receive(&*stream, &mut bytes, SOON).unwrap(), 1, "{name}");
            for _ in 0..3 {
                assert_eq!(receive(&*stream, &mut bytes, SOON).unwrap(), 0, "{name}");
            }
        });
    }
}

/// Whether a read ended because the connection has ended.
fn has_ended(read: &std::io::Result<usize>) -> bool {
    !is_timeout(read) && !read.as_ref().is_ok_and(|count| *count > 0)
}

#[test]
fn threads_that_are_blocked_in_both_directions_return_when_the_connection_is_ended() {
    with_each(SOON, |name, (stream, _server)| {
        std::thread::scope(|scope| {
            let start = machine_now();
            let reader = scope.spawn(|| receive(&*stream, &mut [0; 10], SOON));
            let writer = scope.spawn(|| while stream.write_all(&[0; 100_000]).is_ok() {});
            // A writer that is blocked writes nothing more; this cannot be seen from outside.
            std::thread::sleep(Duration::from_millis(100));
            assert!(!reader.is_finished() && !writer.is_finished());
            stream.shut_down();
            let read = reader.join().unwrap();
            assert!(has_ended(&read), "{name}: {read:?}");
            writer.join().unwrap();
            assert!(since(start) < SOON / 2, "{name}: {:?}", since(start));
        });
    });
}

#[test]
fn a_write_that_the_peer_does_not_accept_fails_after_the_write_timeout_and_ends_the_connection() {
    let timeout = Duration::from_millis(200);
    with_each(timeout, |name, (stream, _server)| {
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| receive(&*stream, &mut [0; 10], SOON));
            let mut start = machine_now();
            while stream.write_all(&[0; 100_000]).is_ok() {
                start = machine_now();
            }
            let took = since(start);
            assert!(took >= timeout && took < SOON / 2, "{name}: {took:?}");
            assert!(stream.write_all(b"more").is_err(), "{name}");
            let read = reader.join().unwrap();
            assert!(has_ended(&read), "{name}: {read:?}");
        });
    });
}
