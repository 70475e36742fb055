//! `luagate export`: metrics for Prometheus.

mod http;
mod known;
mod metrics;
mod pace;
mod reader;

use crate::address::ServerArgs;
use crate::args::ExportArgs;
use crate::ended::{Ended, UNREACHABLE};
use crate::output;
use crate::sample::NameFilter;
use http::Text;
use known::Known;
use pace::Pace;
use reader::{Board, Reader};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// The time for one call. A call takes the server about 0.1 ms, so this is 4 % of one of its cores.
const GAP: Duration = Duration::from_micros(2_500);

/// The same of `--once`.
const GAP_ONCE: Duration = Duration::from_micros(500);

/// How long a scrape waits for the first reading. Prometheus gives up after 10 s.
const FIRST: Duration = Duration::from_secs(8);

pub fn export(server: &ServerArgs, args: ExportArgs) -> Result<u8, Ended> {
    let known = Known::new(NameFilter::of(&args.filter), args.most);
    let gap = if args.once { GAP_ONCE } else { GAP };
    let mut reader = Reader { server: server.clone(), gate: None, known, pace: Pace::new(gap) };
    if args.once {
        let text = encode(Some(&Arc::new(reader.read_all()?)), true)?;
        return output::print(text).map(|()| 0);
    }
    // The server may be down now. Arguments that are not valid stay so.
    match reader.open() {
        Err(ended) if ended.status != UNREACHABLE => return Err(ended),
        _ => {}
    }
    let listener = http::listen(&args.listen)?;
    let address = listener.local_addr()?;
    let (metrics, due) = (encode(None, false)?.into(), Instant::now());
    let (texts, shown) = watch::channel(Text { metrics, number: 0, due, patience: FIRST });
    let (asks, scrapes) = mpsc::sync_channel(1);
    let serve = move || {
        if let Err(error) = http::serve(listener, shown, asks) {
            output::warn(format!("cannot answer requests: {error}"));
        }
    };
    thread::Builder::new().name("luagate-http".to_owned()).spawn(serve)?;
    output::warn(format!("metrics are at http://{address}/metrics"));
    Err(reader.keep_reading(&scrapes, Board { texts, last: None, is_failing: false }, args.interval))
}

fn encode(reading: Option<&Arc<metrics::Reading>>, is_up: bool) -> Result<String, Ended> {
    metrics::encode(reading, is_up)
        .map_err(|error| Ended::new(1, format!("the metrics cannot be written: {error}")))
}
