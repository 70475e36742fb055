//! Answers HTTP requests. Each connection is a task, so a client that sends or reads nothing delays no other.

use super::metrics::CONTENT_TYPE;
use crate::ended::Ended;
use crate::output;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE as TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::io::{Error, ErrorKind};
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// The text of the metrics after the last reading.
#[derive(Clone)]
pub struct Text {
    pub metrics: Arc<str>,
    /// How many readings have ended.
    pub number: u64,
    /// The next reading does not begin before this.
    pub due: Instant,
    /// How long a scrape waits for the next reading.
    pub patience: Duration,
}

/// How a request gets the metrics.
#[derive(Clone)]
struct Scrape {
    texts: watch::Receiver<Text>,
    /// Asks for a reading.
    asks: SyncSender<()>,
}

/// The most connections. Another one closes the oldest one, so that clients that send nothing cannot use up
/// all of them.
const CONNECTIONS: usize = 200;

/// A connection without a request is closed after this time.
const IDLE: Duration = Duration::from_secs(300);

/// The pause after an error of the system, such as too many open files.
const PAUSE: Duration = Duration::from_millis(200);

const HTML: &str = "text/html; charset=utf-8";
const PLAIN: &str = "text/plain; charset=utf-8";
const START: &str =
    "<!DOCTYPE html>\n<title>luagate</title>\n<p><a href=\"/metrics\">Metrics of luagate</a></p>\n";

/// Listens on this address, such as `localhost:9187`. Without a host, as in `:9187`: on all addresses of the
/// machine.
pub fn listen(address: &str) -> Result<TcpListener, Ended> {
    let addresses: Vec<SocketAddr> = match address.strip_prefix(':') {
        Some(port) => {
            [format!("[::]:{port}"), format!("0.0.0.0:{port}")].iter().flat_map(|a| a.parse()).collect()
        }
        None => address.to_socket_addrs().map_err(|error| cannot_listen(address, &error))?.collect(),
    };
    let mut result = Err(Error::from(ErrorKind::AddrNotAvailable));
    for address in addresses {
        result = TcpListener::bind(address);
        // Another address is no remedy if a program listens on the first one.
        if !matches!(&result, Err(error) if error.kind() != ErrorKind::AddrInUse) {
            break;
        }
    }
    let listener = result.map_err(|error| cannot_listen(address, &error))?;
    listener.set_nonblocking(true)?; // the runtime needs it
    Ok(listener)
}

fn cannot_listen(address: &str, error: &Error) -> Ended {
    match error.kind() {
        ErrorKind::AddrInUse => Ended::new(
            1,
            format!("{address} is in use by another program. Choose another address with --listen"),
        ),
        _ => Ended::new(
            1,
            format!("cannot listen on {address}: {error}. Choose another address with --listen"),
        ),
    }
}

/// Answers requests. Returns only after an error of the runtime.
pub fn serve(
    listener: TcpListener,
    texts: watch::Receiver<Text>,
    asks: SyncSender<()>,
) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let scrape = Scrape { texts, asks };
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let mut open: VecDeque<AbortHandle> = VecDeque::new();
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    open.push_back(tokio::spawn(converse(stream, scrape.clone())).abort_handle())
                }
                Err(error) => {
                    output::warn(format!("cannot accept a connection: {error}"));
                    tokio::time::sleep(PAUSE).await;
                }
            }
            open.retain(|connection| !connection.is_finished());
            if open.len() > CONNECTIONS
                && let Some(oldest) = open.pop_front()
            {
                oldest.abort();
            }
        }
    })
}

/// Answers the requests of one connection.
async fn converse(stream: TcpStream, scrape: Scrape) {
    let service = service_fn(|request| answer(request, scrape.clone()));
    let mut http = http1::Builder::new();
    http.title_case_headers(true).timer(TokioTimer::new()).header_read_timeout(IDLE);
    // An error is one of the client, which needs no answer any more.
    let _ = http.serve_connection(TokioIo::new(stream), service).await;
}

async fn answer(request: Request<Incoming>, scrape: Scrape) -> Result<Response<Full<Bytes>>, Infallible> {
    let (status, kind, text) = match (request.method(), request.uri().path()) {
        (&Method::GET | &Method::HEAD, "/metrics") => (StatusCode::OK, CONTENT_TYPE, scrape.metrics().await),
        (&Method::GET | &Method::HEAD, "/") => (StatusCode::OK, HTML, Bytes::from_static(START.as_bytes())),
        (&Method::GET | &Method::HEAD, _) => {
            (StatusCode::NOT_FOUND, PLAIN, Bytes::from_static(b"not found: the metrics are at /metrics\n"))
        }
        _ => (StatusCode::METHOD_NOT_ALLOWED, PLAIN, Bytes::from_static(b"only GET and HEAD\n")),
    };
    let mut response = Response::new(Full::new(text));
    *response.status_mut() = status;
    response.headers_mut().insert(TYPE, HeaderValue::from_static(kind));
    response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    Ok(response)
}

impl Scrape {
    /// Asks for a new reading. The text is that of the new one if it ends soon, otherwise that of the last
    /// one.
    async fn metrics(mut self) -> Bytes {
        let Text { number, due, patience, .. } = self.texts.borrow().clone();
        let _ = self.asks.try_send(()); // or another scrape has asked already
        if Instant::now() >= due {
            let _ = tokio::time::timeout(patience, self.texts.wait_for(|text| text.number > number)).await;
        }
        Bytes::copy_from_slice(self.texts.borrow().metrics.as_bytes())
    }
}
