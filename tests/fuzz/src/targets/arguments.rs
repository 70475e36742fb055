//! Durations, limits and addresses in the arguments of the command. Promise: a refused one gets an error that
//! says what is accepted. An accepted one is in its range, and is the same after it was written and read
//! again.

use super::{text, texts};
use crate::args::{Args, Limit, MOST, duration, limit, listen};
use clap::CommandFactory;
use std::time::Duration;

pub fn run(data: &[u8]) {
    let text = text(data);
    match duration(&text) {
        Ok(read) => {
            assert!(read <= Duration::from_secs(36_525 * 86_400), "{read:?}");
            let nanos = read.as_nanos();
            let written = format!("{}.{:09}s", nanos / 1_000_000_000, nanos % 1_000_000_000);
            assert_eq!(duration(&written), Ok(read), "{written}");
        }
        Err(refused) => assert!(refused.starts_with("accepted: ")),
    }
    match limit(&text) {
        Ok(Limit::Stored) => assert_eq!(text, "stored"),
        Ok(Limit::Declared(read)) => {
            assert!((1..=MOST).contains(&i64::from(read)));
            assert_eq!(limit(&read.to_string()), Ok(Limit::Declared(read)));
        }
        Err(refused) => assert!(refused.starts_with("accepted: ")),
    }
    let is_port = text.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    assert_eq!(listen(&text).is_ok(), is_port);
    if text.contains('\n') {
        let words = ["luagate"].into_iter().chain(text.split('\n'));
        let _ = Args::command()
            .try_get_matches_from(words)
            .map_err(|error| assert!(!error.to_string().is_empty()));
    }
}

pub fn seeds() -> Vec<Vec<u8>> {
    texts(&[
        "2.5s",
        "500ms",
        "10m",
        "1h",
        "1d",
        "36525d",
        "1e3",
        "1e-9s",
        "0.1",
        "-1s",
        "inf",
        "stored",
        "2147483647",
        ":9187",
        "[::1]:9187",
        "run\n-n\n5\n-w\n2.5s\nmarket\n--\n./trade",
        "acquire\n--no-keeper\n--lease\n10m\ndeploy:shop",
        "latch\nnightly\n-n\n10\nwait\n-w\n2h",
    ])
}
