//! Acquires and releases so many times, and nothing else: what `instructions` runs under callgrind.

use luagate::Gate;
use luagate_benches::client::pairs;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, prefix, count] = &arguments[..] else { panic!("takes url, prefix and count") };
    // Callgrind makes it slow, and others may have the processors: no call is to be given up and made again.
    let gate = Gate::builder(url)
        .prefix(prefix)
        .connect_timeout(PATIENCE)
        .read_timeout(PATIENCE)
        .write_timeout(PATIENCE)
        .open()
        .unwrap();
    // With a lease of its own, so that no thread renews it in the meantime.
    let semaphore = gate.semaphore("pairs", 1).lease(Duration::from_secs(3_600));
    pairs(&semaphore, count.parse().unwrap());
}
