//! Errors of opening a gate, without a server.

use super::Printed;

use luagate::Gate;
use std::time::Duration;

pub(super) fn print(printed: &mut Printed) {
    for url in [
        "user:hunter2@localhost",
        "http://localhost",
        "redis://",
        "redis://[x]",
        "redis://0.0.0.0",
        "redis://a b",
        "redis://user:hunter2@a:b",
        "redis://:hunter2@a/b",
        "redis://:hunter2%ff@a",
        "redis://:hunter2/b@c",
        "unix://a",
        "redis://a?protocol=9",
        "redis://[::1",
        "unix:///a?db=b&pass=hunter2",
        "redis://a?protocol=9&password=hunter2",
        "redis://a?db=1&db=1",
        "redis://a/1?db=2",
        "redis://a?password=",
        "redis://a?timeout=5",
        "redis://a?password=1&hunter2=3",
        "redis://a?hunter2",
        "redis://a?password=1#hunter2",
    ] {
        printed.call(Gate::open(url));
    }
    cluster(printed);
    sentinel(printed);
    if !cfg!(feature = "tls") {
        printed.call(Gate::open("rediss://a"));
    }
    settings(printed);
}

fn settings(printed: &mut Printed) {
    let builder = || Gate::builder("redis://127.0.0.1:1/");
    let second = Duration::from_secs(1);
    let credentials = || Ok::<_, &str>(luagate::Credentials::password("hunter2"));
    for builder in [
        Gate::builder("redis://:hunter2@127.0.0.1:1/").credentials(credentials),
        builder().prefix(""),
        builder().prefix("a b"),
        builder().label(""),
        builder().label(&"x".repeat(164)),
        builder().label("a b"),
        builder().connect_timeout(Duration::ZERO),
        builder().read_timeout(25 * 3_600 * second),
        builder().min_replicas(0, second),
        builder().read_timeout(second).min_replicas(1, second),
    ] {
        printed.call(builder.open());
    }
}

fn cluster(printed: &mut Printed) {
    printed.call(Gate::open("redis+cluster://a:1,b:x"));
    printed.call(Gate::open("redis+cluster://:a/hunter2@c"));
    printed.call(Gate::open("redis+cluster://127.0.0.1:1/3"));
}

fn sentinel(printed: &mut Printed) {
    printed.call(Gate::open("redis+sentinel://:hunter2@a:1"));
    printed.call(Gate::open("redis+sentinel://a,,c/orders"));
    printed.call(Gate::builder("redis://a").sentinels_as("redis://b").open());
}
