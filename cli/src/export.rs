//! `luagate export`: metrics for Prometheus.

mod cache;
mod http;
mod metrics;
mod pace;
mod reader;

use crate::address::ServerArgs;
use crate::args::ExportArgs;
use crate::ended::{Ended, UNREACHABLE};
use crate::sample::NameFilter;
use cache::Cache;
use reader::Reader;
use std::io::Write;
use std::sync::Arc;
use std::thread;

pub fn export(server: &ServerArgs, args: ExportArgs) -> Result<u8, Ended> {
    let reader = Reader { gate: server.open()?, names: NameFilter::of(&args.filter), most: args.most };
    if args.once {
        let reading = reader.read().map_err(|error| Ended::new(UNREACHABLE, error))?;
        let text = metrics::encode(Some(&Arc::new(reading)), true).map_err(|error| Ended::new(1, error))?;
        let mut out = std::io::stdout().lock();
        out.write_all(text.as_bytes())?;
        out.flush()?;
        return Ok(0);
    }
    let listener = http::listen(args.listen)?;
    let address = listener.local_addr()?;
    let cache = Arc::new(Cache::default());
    let answers = cache.clone();
    thread::Builder::new().name("luagate-http".to_owned()).spawn(move || http::serve(&listener, &answers))?;
    eprintln!("luagate: metrics are at http://{address}/metrics");
    reader.keep_reading(&cache, args.interval)
}
