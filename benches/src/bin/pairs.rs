//! Acquires and releases so many times, and nothing else: what `instructions` runs under callgrind.

use luagate::Gate;
use luagate_benches::client::pairs;
use std::time::Duration;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, prefix, count] = &arguments[..] else {
        panic!("takes url, prefix and count")
    };
    let gate = Gate::builder(url).prefix(prefix).open().unwrap();
    // With a lease of its own, so that no thread renews it in the meantime.
    let semaphore = gate.semaphore("pairs", 1).lease(Duration::from_secs(3_600));
    pairs(&semaphore, count.parse().unwrap());
}
