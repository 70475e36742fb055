//! A web service with a limit of five requests of an account at a time, over all its servers. The sixth request gets an
//! answer with the time at which to retry.
//!
//! ```sh
//! cargo run --example web_service    # REDIS_URL is the address of the server; default: redis://127.0.0.1/
//! ```
//!
//! It starts the service, then simulates six clients that send a request at the same time.

use luagate::errors::TryAcquireError;
use luagate::{Gate, Lease};
use std::env;
use std::error::Error;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

/// The duration of the work for a request.
const WORK: Duration = Duration::from_millis(500);

/// Longer than any request may take. After a crash of a server, its permits become free after this time.
const LEASE: Duration = Duration::from_millis(800);

/// Handles a request, if fewer than five are active. Returns the status, with further headers if any, and the text.
fn report(gate: &Gate, account: &str) -> (String, String) {
    let requests = gate.semaphore(&format!("account:{account}"), 5);
    let _permit = match requests.lease(Lease::fixed(LEASE)).try_acquire() {
        Ok(permit) => permit,
        Err(TryAcquireError::Denied(denied)) => {
            let after = denied.retry_after(WORK);
            let seconds = after.as_millis().div_ceil(1_000); // the header has whole seconds
            return (
                format!("429 Too Many Requests\r\nRetry-After: {seconds}"),
                format!("busy, try again in {seconds} s"),
            );
        }
        // The client sent an account that is not a valid name: it has white space, or is far too long.
        Err(TryAcquireError::Invalid(why)) => return ("400 Bad Request".into(), why.to_string()),
        Err(why) => return ("503 Service Unavailable".into(), why.to_string()),
    };
    thread::sleep(WORK);
    ("200 OK".into(), format!("the report of account {account}"))
} // dropping the permit releases it for the next request

fn main() -> Result<(), Box<dyn Error>> {
    let url = env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1/".to_owned());
    // A prefix for this run only, so that two runs on one server do not interfere. All servers of a real service share
    // a prefix.
    let prefix = format!("example:{}", uuid::Uuid::new_v4().simple());
    let gate = Gate::builder(&url).prefix(&prefix).open()?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let gate = gate.clone();
            thread::spawn(move || serve(&client, &gate));
        }
    });
    play_six_clients(address)
}

/// Reads one request and sends one response.
fn serve(mut client: &TcpStream, gate: &Gate) -> io::Result<()> {
    client.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut lines = BufReader::new(client.take(8_192)).lines();
    let request = lines.next().transpose()?.unwrap_or_default();
    while lines.next().transpose()?.is_some_and(|header| !header.is_empty()) {}
    let page = request.strip_prefix("GET /accounts/");
    let (status, text) = match page.and_then(|rest| rest.split_once("/report ")) {
        Some((account, _)) => report(gate, account),
        None => ("404 Not Found".into(), "there are only /accounts/<account>/report".into()),
    };
    let length = text.len();
    let kind = "Content-Type: text/plain; charset=utf-8\r\nConnection: close";
    write!(client, "HTTP/1.1 {status}\r\n{kind}\r\nContent-Length: {length}\r\n\r\n{text}")
}

/// Sends a request. Returns the head and the text of the response.
fn get(address: SocketAddr) -> io::Result<(String, String)> {
    let mut server = TcpStream::connect(address)?;
    server.write_all(b"GET /accounts/17/report HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
    let mut answer = String::new();
    server.read_to_string(&mut answer)?;
    let (head, text) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    Ok((head.to_owned(), text.to_owned()))
}

/// A client that retries once, after the time in the response. Returns all responses.
fn visit(address: SocketAddr) -> io::Result<Vec<(String, String)>> {
    let (head, text) = get(address)?;
    let reported = text.split(' ').filter(|_| head.contains(" 429 ")).find_map(|word| word.parse().ok());
    let mut answers = vec![(head, text)];
    if let Some(seconds) = reported {
        thread::sleep(Duration::from_secs(seconds));
        answers.push(get(address)?);
    }
    Ok(answers)
}

fn play_six_clients(address: SocketAddr) -> Result<(), Box<dyn Error>> {
    let clients = [(); 6].map(|()| thread::spawn(move || visit(address)));
    let mut statuses = Vec::new();
    for (client, number) in clients.into_iter().zip(1..) {
        for (head, text) in client.join().map_err(|_| "a client panicked")?? {
            let (status, headers) = head.split_once("\r\n").ok_or("no HTTP")?;
            println!("client {number}: {status}: {text}");
            if !status.ends_with(" 200 OK") {
                println!("{headers}");
            }
            statuses.push(status.to_owned());
        }
    }
    let served = statuses.iter().filter(|status| status.ends_with(" 200 OK")).count();
    match (served, statuses.len()) {
        (6, 7) => Ok(()),
        _ => Err(format!("expected seven responses, six of them 200 OK, got {statuses:?}").into()),
    }
}
