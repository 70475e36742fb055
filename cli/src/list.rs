//! `luagate ls`: all names.

use crate::address::ServerArgs;
use crate::args::LsArgs;
use crate::ended::Ended;
use crate::label;
use crate::output;
use crate::sample::{self, Sample};
use crate::table::{self, NONE, age_or_none};
use serde_json::json;

/// The columns of a list.
pub const HEAD: [&str; 7] = ["NAME", "KIND", "IN USE", "WAITING", "OLDEST", "LONGEST WAIT", "HELD BY"];

pub fn ls(server: &ServerArgs, args: &LsArgs) -> Result<u8, Ended> {
    let mut samples = sample::read_all(&server.open()?, &args.filter)?;
    sample::sort(&mut samples, args.order);
    print(&samples, args.json)?;
    Ok(0)
}

/// Prints samples as a table, or as JSON.
pub fn print(samples: &[Sample], as_json: bool) -> Result<(), Ended> {
    if as_json {
        let rows: Vec<_> = samples.iter().map(Sample::json).collect();
        return output::print(output::json(&json!({ "names": rows })));
    }
    table::print(&HEAD, samples.iter().map(cells))
}

/// The cells of a row.
pub fn cells(sample: &Sample) -> Vec<String> {
    let labels = match sample.labels[..] {
        [] => NONE.to_owned(),
        _ => sample.labels.iter().map(|text| label::shown(text)).collect::<Vec<_>>().join(", "),
    };
    vec![
        sample.name.name.clone(),
        sample.name.kind.to_string(),
        sample.usage(),
        sample.waiting.to_string(),
        age_or_none(sample.oldest),
        age_or_none(sample.longest),
        labels,
    ]
}
