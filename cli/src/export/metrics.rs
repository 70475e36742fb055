//! Makes the metrics of a reading. Nothing here connects.

use super::known::in_use;
use crate::output::visible;
use crate::sample::Sample;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, prometheus_text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The type of the answer.
pub const CONTENT_TYPE: &str = prometheus_text::CONTENT_TYPE;

/// The result of one reading of the server.
#[derive(Clone, Debug)]
pub struct Reading {
    /// The names with metrics, sorted.
    pub samples: Vec<Sample>,
    /// All names, also those without metrics.
    pub found: u64,
    /// Those whose state cannot be read.
    pub unreadable: u64,
    pub took: Duration,
    /// Since 1970, at the end of the reading.
    pub at: Duration,
}

impl Reading {
    fn omitted(&self) -> u64 {
        self.found.saturating_sub(self.unreadable).saturating_sub(self.samples.len() as u64)
    }
}

/// A gauge for each name.
struct PerName {
    name: &'static str,
    help: &'static str,
    /// `None`: this name does not have it.
    value: fn(&Sample) -> Option<f64>,
}

const PER_NAME: [PerName; 5] = [
    PerName {
        name: "luagate_in_use",
        help: "Permits in use. Of a reader-writer lock: readers, or 1 for a writer.",
        value: |sample| Some(in_use(sample) as f64),
    },
    PerName {
        name: "luagate_limit",
        help: "The limit in force. A reader-writer lock has none.",
        value: |sample| sample.limit.map(f64::from),
    },
    PerName {
        name: "luagate_waiting",
        help: "Callers in line.",
        value: |sample| Some(sample.waiting as f64),
    },
    PerName {
        name: "luagate_oldest_holder_seconds",
        help: "Time since the grant of the oldest of 100 holders. 0: nobody holds a permit.",
        value: |sample| Some(seconds(sample.oldest)),
    },
    PerName {
        name: "luagate_longest_wait_seconds",
        help: "Time since the first caller in line joined it. 0: nobody waits.",
        value: |sample| Some(seconds(sample.longest)),
    },
];

fn seconds(time: Option<Duration>) -> f64 {
    time.unwrap_or_default().as_secs_f64()
}

/// The metrics as text. `last`: the last reading that succeeded. `is_up`: whether the last reading succeeded.
pub fn encode(last: Option<&Arc<Reading>>, is_up: bool) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Exported { last: last.cloned(), is_up }));
    let mut text = String::new();
    prometheus_text::encode(&mut text, &registry)?;
    Ok(text)
}

#[derive(Debug)]
struct Exported {
    last: Option<Arc<Reading>>,
    is_up: bool,
}

impl Collector for Exported {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let mut gauge = |name, help, value: f64| {
            ConstGauge::new(value).encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)
        };
        gauge(
            "luagate_up",
            "1: the last reading of the server succeeded. 0: it failed.",
            f64::from(u8::from(self.is_up)),
        )?;
        let Some(last) = &self.last else {
            return Ok(());
        };
        gauge("luagate_names", "Names on the server that the filter accepts.", last.found as f64)?;
        gauge(
            "luagate_names_omitted",
            "Names without metrics, because --most is lower.",
            last.omitted() as f64,
        )?;
        gauge("luagate_unreadable_names", "Names whose state cannot be read.", last.unreadable as f64)?;
        gauge(
            "luagate_reading_seconds",
            "Duration of the last reading that succeeded.",
            last.took.as_secs_f64(),
        )?;
        let at = last.at.as_secs_f64();
        gauge(
            "luagate_reading_timestamp_seconds",
            "End of the last reading that succeeded, since 1970.",
            at,
        )?;
        for PerName { name, help, value } in PER_NAME {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for sample in &last.samples {
                let name = visible(&sample.name.name);
                let labels = [("name", name.as_str()), ("kind", sample.name.kind.as_str())];
                if let Some(value) = value(sample) {
                    ConstGauge::new(value).encode(family.encode_family(&labels)?)?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
