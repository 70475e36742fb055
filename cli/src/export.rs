//! `luagate export`: metrics for Prometheus.

mod http;
mod metrics;
mod pace;
mod reader;

use crate::address::ServerArgs;
use crate::args::ExportArgs;
use crate::ended::{Ended, UNREACHABLE};
use crate::output;
use crate::sample::NameFilter;
use reader::Reader;
use std::sync::Arc;
use std::thread;
use tokio::sync::watch;

pub fn export(server: &ServerArgs, args: ExportArgs) -> Result<u8, Ended> {
    let reader = Reader { gate: server.open()?, names: NameFilter::of(&args.filter), most: args.most };
    if args.once {
        let reading = reader.read().map_err(|error| Ended::new(UNREACHABLE, error))?;
        let text = metrics::encode(Some(&Arc::new(reading)), true).map_err(|error| Ended::new(1, error))?;
        output::print(text)?;
        return Ok(0);
    }
    let listener = http::listen(args.listen)?;
    let address = listener.local_addr()?;
    let (text, texts) = watch::channel(None);
    let serve = move || {
        if let Err(error) = http::serve(listener, &texts) {
            output::warn(format!("cannot answer requests: {error}"));
        }
    };
    thread::Builder::new().name("luagate-http".to_owned()).spawn(serve)?;
    output::warn(format!("metrics are at http://{address}/metrics"));
    reader.keep_reading(&text, args.interval)
}
