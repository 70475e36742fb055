//! Answers HTTP requests.

use super::cache::Cache;
use super::metrics::CONTENT_TYPE;
use crate::ended::Ended;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use std::net::{SocketAddr, TcpListener};
use std::thread;
use std::time::Duration;
use tiny_http::{Header, Method, Request, Response, Server};

/// How many requests are answered at the same time.
const AT_ONCE: usize = 4;

/// A client that does not read its answer for this time is given up. It would otherwise block a thread for ever.
const WRITING: Duration = Duration::from_secs(5);

/// A connection without a request is closed after this time.
const IDLE: Duration = Duration::from_secs(300);

/// The pause after an error of the system, such as too many open files.
const PAUSE: Duration = Duration::from_millis(200);

const HTML: &str = "text/html; charset=utf-8";
const PLAIN: &str = "text/plain; charset=utf-8";
const START: &str = "<!DOCTYPE html>\n<title>luagate</title>\n<p><a href=\"/metrics\">Metrics of luagate</a></p>\n";

/// Listens on this address.
pub fn listen(address: SocketAddr) -> Result<TcpListener, Ended> {
    let failed = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::AddrInUse => {
            Ended::new(1, format!("{address} is in use by another program. Choose another address with --listen"))
        }
        _ => Ended::new(1, format!("cannot listen on {address}: {error}")),
    };
    let listener = TcpListener::bind(address).map_err(failed)?;
    // The connections inherit the timeouts.
    for (timeout, time) in [(Timeout::Send, WRITING), (Timeout::Recv, IDLE)] {
        set_socket_timeout(&listener, timeout, Some(time)).map_err(|error| failed(error.into()))?;
    }
    Ok(listener)
}

/// Answers requests. Never returns.
pub fn serve(listener: &TcpListener, cache: &Cache) -> ! {
    loop {
        // After an error the HTTP server accepts no more connections, so another one replaces it.
        let server =
            listener.try_clone().map_err(Into::into).and_then(|listener| Server::from_listener(listener, None));
        match server {
            Ok(server) => answer_all(&server, cache),
            Err(error) => eprintln!("luagate: cannot answer requests: {error}"),
        }
        thread::sleep(PAUSE);
    }
}

/// Answers requests until an error of the system.
fn answer_all(server: &Server, cache: &Cache) {
    let work = || {
        loop {
            match server.recv() {
                // A client that has gone needs no answer.
                Ok(request) => drop(answer(request, cache)),
                Err(_) => return (0..AT_ONCE).for_each(|_| server.unblock()),
            }
        }
    };
    thread::scope(|scope| {
        for _ in 1..AT_ONCE {
            let _ = thread::Builder::new().spawn_scoped(scope, work); // without it, requests wait longer
        }
        work();
    });
}

fn answer(request: Request, cache: &Cache) -> std::io::Result<()> {
    let path = request.url().split(['?', '#']).next().unwrap_or_default();
    let (status, kind, text) = match (request.method(), path) {
        (Method::Get | Method::Head, "/metrics") => (200, CONTENT_TYPE, cache.get()),
        (Method::Get | Method::Head, "/") => (200, HTML, START.into()),
        (Method::Get | Method::Head, _) => (404, PLAIN, "not found: the metrics are at /metrics\n".into()),
        _ => (405, PLAIN, "only GET and HEAD\n".into()),
    };
    let mut response = Response::from_data(text.as_bytes()).with_status_code(status);
    response = response.with_chunked_threshold(usize::MAX); // the length is known
    for (name, value) in [("Content-Type", kind), ("Allow", "GET, HEAD")] {
        if let Ok(header) = Header::from_bytes(name, value) {
            response.add_header(header);
        }
    }
    request.respond(response)
}
