//! A web service as a process, and requests to it.

use super::leftovers::{MARK, mark};
use super::{eventually, within};
use std::io::{BufRead, BufReader, ErrorKind, PipeReader, Read, Write, pipe};
use std::net::TcpStream;
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// The longest time until an answer or a line. It only bounds a failure.
pub const LONGEST: Duration = Duration::from_secs(60);

/// The lines of a pipe. All are read, so that no process waits because the pipe is full.
pub fn lines_of(reader: PipeReader) -> Receiver<String> {
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(reader).lines().map_while(Result::ok) {
            let _ = sender.send(line); // it may be that nobody needs further lines
        }
    });
    lines
}

/// One process of a service. It is ended with the test.
pub struct Service {
    process: Child,
    pub address: String,
}

impl Service {
    /// Starts it, and waits for a line with its address.
    #[track_caller]
    pub fn start(mut command: Command) -> Service {
        let (reader, writer) = pipe().unwrap();
        command.env(MARK, mark()).stdout(writer.try_clone().unwrap()).stderr(writer);
        let process = command.spawn().unwrap();
        let mut service = Service { process, address: String::new() };
        drop(command); // and its ends of the pipe
        let lines = lines_of(reader);
        while service.address.is_empty() {
            let line = lines.recv_timeout(LONGEST).expect("the service starts");
            if let Some((_, address)) = line.split_once("http://") {
                service.address = address.split(' ').next().unwrap_or_default().to_owned();
            }
        }
        service
    }

    /// Sends a request, without waiting for the answer.
    pub fn send(&self, path: &str) -> Request {
        let mut socket = TcpStream::connect(&self.address).unwrap();
        socket.set_read_timeout(Some(LONGEST)).unwrap();
        write!(socket, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
        Request(socket)
    }

    pub fn id(&self) -> u32 {
        self.process.id()
    }

    pub fn is_running(&mut self) -> bool {
        self.process.try_wait().unwrap().is_none()
    }

    #[track_caller]
    pub fn ends(&mut self) -> ExitStatus {
        let ended = within(LONGEST, || self.process.try_wait().unwrap());
        ended.expect("the process ends")
    }

    #[track_caller]
    pub fn refuses_connections(&self) {
        eventually("no new connections", || TcpStream::connect(&self.address).is_err().then_some(()));
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A request that was sent. Dropping it disconnects.
pub struct Request(TcpStream);

impl Request {
    /// The answer up to the end of its body, or to the end of the connection.
    #[track_caller]
    pub fn answer(mut self) -> Answer {
        let mut text = String::new();
        if let Err(error) = self.0.read_to_string(&mut text) {
            // A connection that is cut may be reset.
            assert_eq!(error.kind(), ErrorKind::ConnectionReset, "no end of the answer: {error}: {text}");
        }
        Answer(text)
    }

    /// The status line and the headers, as soon as they have come. The body is not read.
    pub fn head(&mut self) -> Answer {
        let mut text = String::new();
        while !text.ends_with("\r\n\r\n") {
            let mut byte = [0];
            self.0.read_exact(&mut byte).unwrap();
            text.push(char::from(byte[0]));
        }
        Answer(text)
    }
}

#[derive(Debug)]
pub struct Answer(pub String);

impl Answer {
    #[track_caller]
    pub fn status(&self) -> u16 {
        self.after("http/1.1 ").expect("an answer").try_into().unwrap()
    }

    pub fn retry_after(&self) -> Option<u64> {
        self.after("retry-after: ")
    }

    /// The number after this text in small letters.
    fn after(&self, text: &str) -> Option<u64> {
        let lower = self.0.to_lowercase();
        let rest = lower.split(text).nth(1)?;
        rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
    }

    /// Whether the body has ended, and was not cut off.
    pub fn is_complete(&self) -> bool {
        self.0.ends_with("\r\n0\r\n\r\n")
    }
}

/// The head of the answer to this request: not 503. On a loaded machine the reply to its last call can come
/// too late, so that the service does not know whether a permit was free. Then the request is sent again.
#[track_caller]
pub fn decided(request: &mut Request, again: impl Fn() -> Request) -> Answer {
    let decided = within(LONGEST, || {
        let answer = request.head();
        if answer.status() == 503 {
            *request = again();
            return None;
        }
        Some(answer)
    });
    decided.expect("an answer that is not 503")
}

/// Of these eight requests five are sent an answer; the others get 429, and a time after which to try again.
/// `again` sends another one.
#[track_caller]
pub fn assert_five_are_sent(requests: &mut [Request; 8], again: impl Fn() -> Request) {
    let answers: Vec<Answer> = requests.iter_mut().map(|request| decided(request, &again)).collect();
    let (sent, refused): (Vec<_>, Vec<_>) = answers.iter().partition(|answer| answer.status() == 200);
    assert_eq!((sent.len(), refused.len()), (5, 3), "{answers:?}");
    for answer in refused {
        assert_eq!(answer.status(), 429, "{answer:?}");
        assert!(answer.retry_after() >= Some(1), "{answer:?}");
    }
}
