//! Acquires and releases a number of times, and does nothing else: the program that `instructions` runs under
//! callgrind.

use luagate::Gate;
use luagate_benches::client::pairs;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, prefix, count] = &arguments[..] else { panic!("takes url, prefix and count") };
    // Callgrind makes the program slow, and the processors may be busy: no call must time out and be repeated.
    let gate = Gate::builder(url)
        .prefix(prefix)
        .connect_timeout(PATIENCE)
        .read_timeout(PATIENCE)
        .write_timeout(PATIENCE)
        .open()
        .unwrap();
    // A fixed lease, so that no thread renews it in the meantime.
    let semaphore = gate.semaphore("pairs", 1).lease(Duration::from_secs(3_600));
    pairs(&semaphore, count.parse().unwrap());
}
