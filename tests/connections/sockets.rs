//! Promise: a unix socket whose server does not respond keeps no caller longer than its time limit.

use crate::own;
use crate::support::{Server, eventually, kill_connections};

use futures_executor::block_on;
use luagate::errors::{CallError, FailureKind};
use luagate::{Gate, GateBuilder};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use redis::io::tcp::socket2::{Domain, SockAddr, Socket, Type};

const SHORT: Duration = Duration::from_millis(200);
const IN_TIME: Duration = Duration::from_secs(5);

/// A socket at this path whose queue of new connections is full, while the result exists.
fn full(path: &Path) -> (Socket, Vec<Socket>) {
    let listener = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
    let address = SockAddr::unix(path).unwrap();
    listener.bind(&address).unwrap();
    listener.listen(0).unwrap();
    let connect = || {
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
        socket.set_nonblocking(true).unwrap();
        socket.connect(&address).is_ok().then_some(socket)
    };
    let queue = std::iter::from_fn(connect).collect();
    (listener, queue)
}

fn builder(path: &Path) -> GateBuilder {
    Gate::builder(&format!("unix://{}", path.display())).connect_timeout(SHORT)
}

/// Runs a call in its own thread, and returns its result, if it returns in time.
#[track_caller]
fn in_time<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, result) = channel();
    thread::spawn(move || sender.send(call()));
    result.recv_timeout(IN_TIME).expect("it returns in time")
}

#[test]
fn a_gate_does_not_wait_for_ever_for_a_socket_whose_queue_is_full() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("full");
    let _full = full(&path);
    let (for_thread, for_task) = (builder(&path), builder(&path));
    for opened in [in_time(|| for_thread.open()), in_time(|| block_on(for_task.open_async()))] {
        let Err(CallError::Failed(failure)) = opened else { panic!("{opened:?}") };
        assert_eq!(failure.kind(), FailureKind::Unreachable, "{failure}");
    }
}

#[test]
fn calls_work_again_when_the_path_leads_to_a_server_that_responds() {
    let server = own!(Server::private(&[]));
    let folder = tempfile::tempdir().unwrap();
    let (path, full_path) = (folder.path().join("socket"), folder.path().join("full"));
    let _full = full(&full_path);
    let leads_to = |target: &Path| {
        let new = folder.path().join("new");
        symlink(target, &new).unwrap();
        std::fs::rename(new, &path).unwrap();
    };
    let good = Path::new(server.url.strip_prefix("unix://").unwrap());
    UnixStream::connect(good).unwrap();
    leads_to(good);
    let gate = builder(&path).prefix(&server.prefix).open().unwrap();
    let semaphore = gate.semaphore("s", 5);
    leads_to(&full_path);
    kill_connections(&mut server.connection(), "normal");
    let (for_thread, for_task) = (semaphore.clone(), semaphore.clone());
    assert!(in_time(move || for_thread.try_acquire().is_err()));
    assert!(in_time(move || block_on(for_task.try_acquire_async()).is_err()));
    leads_to(good);
    drop(eventually("calls work again", || semaphore.try_acquire().ok()));
}
