//! A web service that works on five requests of an account at a time, however many servers it runs on, and tells the
//! sixth when to come back.
//!
//! ```sh
//! cargo run --example web_service    # REDIS_URL names the server; redis://127.0.0.1/ unless set
//! ```
//!
//! It serves, then plays six clients of its own who all come at once.

use luagate::Gate;
use luagate::errors::TryAcquireError;
use std::env;
use std::error::Error;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

/// How long a request takes.
const WORK: Duration = Duration::from_millis(500);

/// Longer than any request may take. The permit of a server that crashed comes back after it.
const LEASE: Duration = Duration::from_millis(800);

/// Does the work of a request if it is one of five: status, with further headers if any, and text.
fn report(gate: &Gate, account: &str) -> (String, String) {
    let requests = gate.semaphore(&format!("account:{account}"), 5);
    let _permit = match requests.lease(LEASE).try_acquire() {
        Ok(permit) => permit,
        Err(TryAcquireError::Denied(denied)) => {
            let after = denied.retry_after(WORK);
            let seconds = after.as_millis().div_ceil(1_000); // the header knows no smaller unit
            return (
                format!("429 Too Many Requests\r\nRetry-After: {seconds}"),
                format!("busy, try again in {seconds} s"),
            );
        }
        // What the client sent makes no name: it has white space, or is far too long.
        Err(TryAcquireError::Invalid(why)) => return ("400 Bad Request".into(), why.to_string()),
        Err(why) => return ("503 Service Unavailable".into(), why.to_string()),
    };
    thread::sleep(WORK);
    ("200 OK".into(), format!("the report of account {account}"))
} // dropping the permit lets the next request in

fn main() -> Result<(), Box<dyn Error>> {
    let url = env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1/".to_owned());
    // So that two runs on one server do not meet. All servers of a real service share a prefix.
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

/// One request, one answer.
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

/// What a client is answered: head and text.
fn get(address: SocketAddr) -> io::Result<(String, String)> {
    let mut server = TcpStream::connect(address)?;
    server.write_all(b"GET /accounts/17/report HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
    let mut answer = String::new();
    server.read_to_string(&mut answer)?;
    let (head, text) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    Ok((head.to_owned(), text.to_owned()))
}

/// A client that comes back once, when it is told to: what it is answered.
fn visit(address: SocketAddr) -> io::Result<Vec<(String, String)>> {
    let (head, text) = get(address)?;
    let told = text.split(' ').filter(|_| head.contains(" 429 ")).find_map(|word| word.parse().ok());
    let mut answers = vec![(head, text)];
    if let Some(seconds) = told {
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
        _ => Err(format!("one was to be refused once, but they were told {statuses:?}").into()),
    }
}
