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
use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::watch;

/// The text of the metrics after the last reading. `None`: before the first one.
pub type Text = Option<Arc<str>>;

/// A connection without a request is closed after this time.
const IDLE: Duration = Duration::from_secs(300);

/// The pause after an error of the system, such as too many open files.
const PAUSE: Duration = Duration::from_millis(200);

const HTML: &str = "text/html; charset=utf-8";
const PLAIN: &str = "text/plain; charset=utf-8";
const START: &str = "<!DOCTYPE html>\n<title>luagate</title>\n<p><a href=\"/metrics\">Metrics of luagate</a></p>\n";

/// Listens on this address.
pub fn listen(address: SocketAddr) -> Result<TcpListener, Ended> {
    let listener = TcpListener::bind(address).map_err(|error| match error.kind() {
        std::io::ErrorKind::AddrInUse => {
            Ended::new(1, format!("{address} is in use by another program. Choose another address with --listen"))
        }
        _ => Ended::new(1, format!("cannot listen on {address}: {error}")),
    })?;
    listener.set_nonblocking(true)?; // the runtime needs it
    Ok(listener)
}

/// Answers requests. Returns only after an error of the runtime.
pub fn serve(listener: TcpListener, texts: &watch::Receiver<Text>) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        loop {
            match listener.accept().await {
                Ok((stream, _)) => drop(tokio::spawn(converse(stream, texts.clone()))),
                Err(error) => {
                    output::warn(format!("cannot accept a connection: {error}"));
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    })
}

/// Answers the requests of one connection.
async fn converse(stream: TcpStream, texts: watch::Receiver<Text>) {
    let service = service_fn(|request| answer(request, texts.clone()));
    let mut http = http1::Builder::new();
    http.title_case_headers(true).timer(TokioTimer::new()).header_read_timeout(IDLE);
    // An error is one of the client, which needs no answer any more.
    let _ = http.serve_connection(TokioIo::new(stream), service).await;
}

async fn answer(
    request: Request<Incoming>,
    mut texts: watch::Receiver<Text>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (status, kind, text) = match (request.method(), request.uri().path()) {
        (&Method::GET | &Method::HEAD, "/metrics") => (StatusCode::OK, CONTENT_TYPE, metrics(&mut texts).await),
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

/// The text of the metrics. Waits only until the first reading has ended.
async fn metrics(texts: &mut watch::Receiver<Text>) -> Bytes {
    let text = texts.wait_for(Option::is_some).await;
    let text = text.ok().and_then(|text| text.clone());
    text.map(|text| Bytes::copy_from_slice(text.as_bytes())).unwrap_or_default()
}
