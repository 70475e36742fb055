//! `export`: metrics over HTTP of the present holders and waiters, also while the server is down.

use super::tool::{Run, Text, bare, luagate, words};
use crate::own;
use crate::support::cluster::Cluster;
use crate::support::leftovers::{MARK, mark};
use crate::support::{SOON, Server, eventually};
use luagate::{Gate, Lease};
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A scrape is answered from memory, within 100 ms. Tests allow more, since other programs may use the
/// machine, but less than the read timeout of 2 s: an answer that waits for the server takes longer.
const AT_ONCE: Duration = Duration::from_secs(1);

/// The command as a service.
struct Exporter {
    child: Child,
    address: SocketAddr,
    /// The lines that it has written.
    lines: Arc<Mutex<Vec<String>>>,
}

impl Exporter {
    fn start(server: &Server, arguments: &str) -> Exporter {
        Exporter::start_in("exec \"$@\"", server, arguments)
    }

    /// With a script of a shell that runs its arguments.
    fn start_in(script: &str, server: &Server, arguments: &str) -> Exporter {
        let mut command = std::process::Command::new("sh");
        command.args(["-c", script, "sh", env!("CARGO_BIN_EXE_luagate")]);
        command.env("LUAGATE_URL", &server.url).env("LUAGATE_PREFIX", &server.prefix).env(MARK, mark());
        let listen = if arguments.contains("--listen") { "" } else { "--listen 127.0.0.1:0" };
        command.arg("export").args(words(listen)).args(words(arguments));
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        let first = lines.next().expect("a line with the address");
        let address = first.split("http://").nth(1).and_then(|rest| rest.strip_suffix("/metrics"));
        let address = address.unwrap_or_else(|| panic!("{first}")).parse().unwrap();
        let written = Arc::new(Mutex::new(Vec::new()));
        let kept = written.clone();
        std::thread::spawn(move || lines.for_each(|line| kept.lock().unwrap().push(line)));
        Exporter { child, address, lines: written }
    }

    /// Sends a request. Returns the head and the body of the answer.
    fn request(&self, method: &str, path: &str) -> (String, String) {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        write!(stream, "{method} {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer:?}"));
        (head.to_owned(), body.to_owned())
    }

    #[track_caller]
    fn metrics(&self) -> String {
        let (head, body) = self.request("GET", "/metrics");
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        body
    }

    /// Blocks until the metrics have all these lines.
    #[track_caller]
    fn shows(&self, lines: &[&str]) {
        let mut last = String::new();
        let shown = crate::support::within(SOON, || {
            last = self.metrics();
            lines.iter().all(|line| last.lines().any(|shown| shown == *line)).then_some(())
        });
        assert!(shown.is_some(), "{lines:?} is not in\n{last}");
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The value of the only metric that begins so.
#[track_caller]
fn value(text: &str, metric: &str) -> f64 {
    let line =
        text.lines().find(|line| line.strip_prefix(metric).is_some_and(|rest| rest.starts_with([' ', '{'])));
    let line = line.unwrap_or_else(|| panic!("no {metric} in\n{text}"));
    line.rsplit_once(' ').unwrap().1.parse().unwrap()
}

fn once(server: &Server, arguments: &str) -> String {
    let ended = luagate(server).args(words("export --once")).args(words(arguments)).done();
    assert_eq!((ended.code(), ended.err()), (0, String::new()));
    ended.out()
}

#[test]
fn metrics_show_what_is_held_and_who_waits() {
    let server = Server::any();
    let gate = server.gate();
    let exporter = Exporter::start(&server, "--interval 50ms");
    let held = gate.semaphore("market:\"1\"", 2).acquire_many(2).unwrap();
    let readers = [(); 2].map(|()| gate.rwlock("config").read().unwrap());
    let writer = gate.rwlock("other").write().unwrap();
    std::thread::scope(|scope| {
        let wait = || gate.semaphore("market:\"1\"", 2).acquire().unwrap().release().unwrap();
        let waiters = [(); 3].map(|()| scope.spawn(wait));
        exporter.shows(&[
            r#"luagate_in_use{name="market:\"1\"",kind="semaphore"} 2.0"#,
            r#"luagate_limit{name="market:\"1\"",kind="semaphore"} 2.0"#,
            r#"luagate_waiting{name="market:\"1\"",kind="semaphore"} 3.0"#,
            r#"luagate_in_use{name="config",kind="rwlock"} 2.0"#,
            r#"luagate_in_use{name="other",kind="rwlock"} 1.0"#,
            "luagate_names 3.0",
            "luagate_names_omitted 0.0",
            "luagate_up 1.0",
        ]);
        let text = exporter.metrics();
        assert!(!text.contains("luagate_limit{name=\"config\""), "{text}");
        // The times grow.
        for metric in
            ["luagate_oldest_holder_seconds{name=\"market", "luagate_longest_wait_seconds{name=\"market"]
        {
            let read = || {
                let text = exporter.metrics();
                let line = text.lines().find(|line| line.starts_with(metric)).unwrap().to_owned();
                line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap()
            };
            let first = read();
            eventually("a later time", || (read() > first).then_some(()));
        }
        held.release().unwrap();
        for waiter in waiters {
            waiter.join().unwrap();
        }
    });
    exporter.shows(&[
        r#"luagate_in_use{name="market:\"1\"",kind="semaphore"} 0.0"#,
        r#"luagate_waiting{name="market:\"1\"",kind="semaphore"} 0.0"#,
        r#"luagate_oldest_holder_seconds{name="market:\"1\"",kind="semaphore"} 0.0"#,
        r#"luagate_longest_wait_seconds{name="market:\"1\"",kind="semaphore"} 0.0"#,
    ]);
    for reader in readers {
        reader.release().unwrap();
    }
    writer.release().unwrap();
}

#[test]
fn once_prints_the_metrics_of_the_names_that_the_filter_accepts() {
    let server = Server::any();
    let gate = server.gate();
    let held = ["a:1", "a:2", "b:1"].map(|name| gate.semaphore(name, 5).acquire().unwrap());
    gate.stored_semaphore("a:3").resize(4).unwrap();
    let text = once(&server, "a:*");
    assert!(text.contains("luagate_in_use{name=\"a:1\",kind=\"semaphore\"} 1.0\n"), "{text}");
    assert!(text.contains("luagate_limit{name=\"a:3\",kind=\"semaphore\"} 4.0\n"), "{text}");
    assert!(!text.contains("b:1"), "{text}");
    assert_eq!((value(&text, "luagate_names"), value(&text, "luagate_up")), (3.0, 1.0));
    let text = once(&server, "--busy");
    assert!(!text.contains("a:3") && text.contains("b:1"), "{text}");
    assert_eq!(value(&text, "luagate_names"), 3.0);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
    let at = value(&text, "luagate_reading_timestamp_seconds");
    assert!((now - 60.0..=now).contains(&at), "{at} {now}");
    for permit in held {
        permit.release().unwrap();
    }
}

#[test]
fn the_busiest_names_have_metrics_and_the_others_are_counted() {
    let server = Server::any();
    let gate = server.gate();
    let held = [("a", 1), ("b", 3), ("c", 1), ("d", 2)].map(|(name, permits)| {
        let semaphore = gate.semaphore(name, 5);
        semaphore.acquire_many(permits).unwrap()
    });
    let text = once(&server, "--most 3");
    let shown: Vec<&str> = text.lines().filter(|line| line.starts_with("luagate_in_use{")).collect();
    let row = |name: &str, permits: u32| {
        format!("luagate_in_use{{name=\"{name}\",kind=\"semaphore\"}} {permits}.0")
    };
    assert_eq!(shown, [row("a", 1), row("b", 3), row("d", 2)], "{text}");
    assert_eq!((value(&text, "luagate_names"), value(&text, "luagate_names_omitted")), (4.0, 1.0));
    for permit in held {
        permit.release().unwrap();
    }
}

#[test]
fn the_first_scrape_waits_for_the_first_reading_which_leaves_the_server_time() {
    let server = Server::any();
    let gate = server.gate();
    let held: Vec<_> =
        (0..1_000).map(|number| gate.semaphore(&format!("n{number}"), 1).acquire().unwrap()).collect();
    let exporter = Exporter::start(&server, "");
    let text = exporter.metrics();
    assert_eq!(text.lines().filter(|line| line.starts_with("luagate_in_use{")).count(), 1_000);
    // At 400 calls a second, 1,000 names take 2.5 seconds.
    let took = value(&text, "luagate_reading_seconds");
    assert!(took > 2.4, "{took}");
    for outcome in luagate::Permit::release_each(held) {
        outcome.unwrap();
    }
}

#[test]
fn a_scrape_is_answered_while_the_server_is_paused_or_down() {
    let mut server = own!(Server::private_tcp(&["--appendonly", "yes", "--appendfsync", "always"]));
    let gate = server.gate();
    let held = gate.semaphore("a", 2).lease(Lease::PERMANENT).acquire().unwrap();
    let exporter = Exporter::start(&server, "--interval 100ms");
    let row = r#"luagate_in_use{name="a",kind="semaphore"} 1.0"#;
    exporter.shows(&[row, "luagate_up 1.0"]);
    let mut longest = Duration::ZERO;
    let mut scrape = || {
        let begun = Instant::now();
        let text = exporter.metrics();
        longest = longest.max(begun.elapsed());
        assert!(longest < AT_ONCE, "{longest:?}");
        assert!(text.contains(row), "{text}");
        text
    };
    for (fault, end) in [
        (Server::pause as fn(&mut Server), Server::resume as fn(&mut Server)),
        (Server::kill, Server::start_again),
    ] {
        fault(&mut server);
        let text = eventually("an outage is shown", || {
            Some(scrape()).filter(|text| text.contains("luagate_up 0.0\n"))
        });
        let at = value(&text, "luagate_reading_timestamp_seconds");
        for _ in 0..20 {
            let text = scrape();
            assert_eq!(value(&text, "luagate_up"), 0.0);
            assert_eq!(value(&text, "luagate_reading_timestamp_seconds"), at);
        }
        end(&mut server);
        eventually("the end of the outage", || {
            let text = scrape();
            (value(&text, "luagate_up") == 1.0 && value(&text, "luagate_reading_timestamp_seconds") > at)
                .then_some(())
        });
    }
    println!("the longest of the scrapes took {longest:?}");
    let count = |lines: &[String], text: &str| {
        lines.iter().filter(|line| line.starts_with("luagate: the server") && line.contains(text)).count()
    };
    eventually("a line for each start and end of an outage", || {
        let lines = exporter.lines.lock().unwrap();
        let counts = ["cannot be read", "can be read again"].map(|text| count(&lines, text));
        assert!(counts.iter().all(|count| *count <= 2), "{lines:?}");
        (counts == [2, 2]).then_some(())
    });
    held.release().unwrap();
}

#[test]
fn other_paths_and_methods_are_refused() {
    let server = Server::any();
    let exporter = Exporter::start(&server, "");
    let (head, body) = exporter.request("GET", "/metrics?debug=1");
    assert!(head.starts_with("HTTP/1.1 200 ") && body.contains("luagate_up 1.0\n"), "{head}\n{body}");
    assert!(head.contains("Content-Type: text/plain; version=0.0.4; charset=utf-8"), "{head}");
    let (head, body) = exporter.request("HEAD", "/metrics");
    assert!(head.starts_with("HTTP/1.1 200 ") && body.is_empty(), "{head}\n{body}");
    let (head, body) = exporter.request("GET", "/");
    assert!(head.starts_with("HTTP/1.1 200 ") && body.contains("href=\"/metrics\""), "{head}\n{body}");
    for path in ["/metric", "/metrics/", "/favicon.ico", "//metrics"] {
        let (head, _) = exporter.request("GET", path);
        assert!(head.starts_with("HTTP/1.1 404 "), "{path}: {head}");
    }
    for method in ["POST", "PUT", "DELETE"] {
        let (head, _) = exporter.request(method, "/metrics");
        assert!(head.starts_with("HTTP/1.1 405 "), "{method}: {head}");
    }
}

#[test]
fn many_scrapes_at_once_are_answered_and_clients_that_send_nothing_delay_nobody() {
    let server = Server::any();
    // The system allows fewer files than there are such clients.
    let exporter = Exporter::start_in("ulimit -n 256; exec \"$@\"", &server, "");
    let silent: Vec<TcpStream> = (0..600).map(|_| TcpStream::connect(exporter.address).unwrap()).collect();
    std::thread::scope(|scope| {
        let scrapes: Vec<_> = (0..20).map(|_| scope.spawn(|| exporter.metrics())).collect();
        for scrape in scrapes {
            assert_eq!(value(&scrape.join().unwrap(), "luagate_up"), 1.0);
        }
    });
    drop(silent);
}

#[test]
fn an_address_in_use_and_an_argument_that_is_not_valid_are_errors_at_the_start() {
    let server = Server::any();
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap().to_string();
    let ended = luagate(&server).args(["export", "--listen", &address]).done();
    assert_eq!(ended.code(), 1, "{ended:?}");
    assert!(ended.err().contains(&address) && ended.err().contains("in use"), "{ended:?}");
    for (url, prefix) in [("nothing://127.0.0.1/", "test"), ("redis://127.0.0.1:1/", "a/b")] {
        let wrong = Server::at(url.to_owned(), prefix.to_owned());
        let ended = luagate(&wrong).args(words("export --listen 127.0.0.1:0")).done();
        std::mem::forget(wrong);
        assert_eq!(ended.code(), 64, "{ended:?}");
    }
}

#[test]
fn it_starts_while_the_server_is_down() {
    let mut server = own!(Server::private_tcp(&["--appendonly", "yes", "--appendfsync", "always"]));
    server.gate().stored_semaphore("a").resize(3).unwrap();
    server.kill();
    let exporter = Exporter::start(&server, "--interval 50ms");
    let text = exporter.metrics();
    assert_eq!(value(&text, "luagate_up"), 0.0);
    assert!(!text.contains("luagate_names"), "{text}");
    eventually("a line that says why", || {
        let lines = exporter.lines.lock().unwrap();
        lines.iter().any(|line| line.starts_with("luagate: the server cannot be read: ")).then_some(())
    });
    server.start_again();
    exporter.shows(&["luagate_up 1.0", r#"luagate_limit{name="a",kind="semaphore"} 3.0"#]);
}

#[test]
fn it_listens_on_the_name_of_a_host_and_on_all_addresses() {
    let server = Server::any();
    for listen in [":0", "localhost:0", "[::1]:0", "0.0.0.0:0"] {
        let exporter = Exporter::start(&server, &format!("--listen {listen}"));
        let own = if listen == "[::1]:0" { "[::1]" } else { "127.0.0.1" };
        let stream = TcpStream::connect(format!("{own}:{}", exporter.address.port()));
        assert!(stream.is_ok(), "{listen}: {}", exporter.address);
    }
    let nowhere = luagate(&server).args(words("export --listen no-such-host.invalid:0")).done();
    assert_eq!(nowhere.code(), 1, "{nowhere:?}");
    assert!(nowhere.err().contains("cannot listen on no-such-host.invalid:0"), "{nowhere:?}");
}

/// How often the server has run each command of the reader.
fn calls(server: &Server) -> [u64; 2] {
    let info: String = redis::cmd("INFO").arg("commandstats").query(&mut server.connection()).unwrap();
    ["evalsha", "scan"].map(|command| {
        let start = format!("cmdstat_{command}:calls=");
        let count = info.lines().find_map(|line| line.strip_prefix(&start)?.split(',').next());
        count.map_or(0, |count| count.parse().unwrap())
    })
}

#[test]
fn without_scrapes_the_server_is_not_read() {
    let server = own!(Server::private(&[]));
    server.gate().stored_semaphore("a").resize(3).unwrap();
    let exporter = Exporter::start(&server, "--interval 50ms");
    exporter.shows(&["luagate_up 1.0"]);
    let mut last = calls(&server);
    eventually("nothing is read", || {
        std::thread::sleep(Duration::from_millis(500));
        (std::mem::replace(&mut last, calls(&server)) == last).then_some(())
    });
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(calls(&server), last);
    // A scrape gets the state of this moment.
    server.gate().stored_semaphore("a").resize(4).unwrap();
    let text = exporter.metrics();
    assert!(text.contains("luagate_limit{name=\"a\",kind=\"semaphore\"} 4.0\n"), "{text}");
}

/// With 0.1 ms for a script these calls take at most 5 % of one of the server's cores. How long a script
/// takes depends on the machine.
#[test]
fn twenty_thousand_names_cost_the_server_at_most_400_scripts_and_25_searches_a_second() {
    let server = own!(Server::private(&[]));
    let gate = server.gate();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let gate = &gate;
            scope.spawn(move || {
                for number in 0..2_500 {
                    gate.stored_semaphore(&format!("market:{thread}:{number:04}")).resize(5).unwrap();
                }
            });
        }
    });
    let exporter = Exporter::start(&server, "");
    let scrape = || {
        let text = exporter.metrics();
        assert_eq!(value(&text, "luagate_up"), 1.0);
        assert_eq!(value(&text, "luagate_names"), 20_000.0);
        let shown = text.lines().filter(|line| line.starts_with("luagate_in_use{")).count();
        assert_eq!(shown as f64 + value(&text, "luagate_names_omitted"), 20_000.0);
        shown
    };
    eventually("all metrics", || (scrape() == 1_000).then_some(()));
    let (before, begun) = (calls(&server), Instant::now());
    while begun.elapsed() < Duration::from_secs(10) {
        scrape();
        std::thread::sleep(Duration::from_millis(200));
    }
    let (after, seconds) = (calls(&server), begun.elapsed().as_secs_f64());
    let [scripts, searches] = [0, 1].map(|index| (after[index] - before[index]) as f64 / seconds);
    assert!(scripts <= 405.0 && searches <= 26.0, "{scripts:.0} scripts and {searches:.1} searches a second");
    assert!(
        scripts >= 100.0 && searches > 0.0,
        "idle: {scripts:.0} scripts and {searches:.1} searches a second"
    );
}

#[test]
fn the_names_of_every_master_of_a_cluster_have_metrics() {
    let cluster = own!(Cluster::new());
    let url = format!("redis+cluster://{}", cluster.addresses().join(","));
    let gate = Gate::builder(&url).prefix(&cluster.prefix).open().unwrap();
    let names: Vec<String> = cluster.masters().iter().map(|node| cluster.name_on(*node)).collect();
    let held: Vec<_> = names.iter().map(|name| gate.mutex(name).lock().unwrap()).collect();
    let ended = bare()
        .env("LUAGATE_URL", &url)
        .env("LUAGATE_PREFIX", &cluster.prefix)
        .args(words("export --once"))
        .done();
    for name in &names {
        assert!(
            ended.out().contains(&format!("luagate_in_use{{name=\"{name}\",kind=\"mutex\"}} 1.0\n")),
            "{ended:?}"
        );
    }
    assert_eq!(value(&ended.out(), "luagate_names"), 3.0);
    for lock in held {
        lock.release().unwrap();
    }
}

/// The metrics that a text names.
fn metrics_in(text: &str) -> BTreeSet<&str> {
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    words.filter(|word| word.starts_with("luagate_")).collect()
}

/// The metrics that the command prints.
fn printed(text: &str) -> BTreeSet<&str> {
    text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect()
}

#[test]
fn the_dashboard_and_the_rules_of_the_guide_use_metrics_that_exist() {
    let text = once(&Server::any(), "");
    let printed = printed(&text);
    assert_eq!(printed.len(), 11, "{text}");

    let dashboard: Value = serde_json::from_str(include_str!("../../grafana.json")).unwrap();
    assert!(dashboard["schemaVersion"].as_u64().unwrap() >= 39);
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    let variable = |name: &str| variables.iter().find(|variable| variable["name"] == name).unwrap();
    assert_eq!(
        (&variable("datasource")["type"], &variable("datasource")["query"]),
        (&"datasource".into(), &"prometheus".into())
    );
    assert_eq!(variable("name")["query"]["query"], "label_values(luagate_in_use, name)");
    let targets = |panel: &Value| panel["targets"].as_array().unwrap().clone();
    let targets: Vec<Value> = dashboard["panels"].as_array().unwrap().iter().flat_map(targets).collect();
    let mut shown = BTreeSet::new();
    for target in &targets {
        assert_eq!(target["datasource"]["uid"], "${datasource}", "{target}");
        let named = metrics_in(target["expr"].as_str().unwrap());
        assert!(!named.is_empty() && named.is_subset(&printed), "{target}");
        shown.extend(named);
    }
    assert_eq!(shown, printed, "the dashboard shows every metric");

    let guide = include_str!("../../../src/guide/observability.md");
    let (_, section) = guide.split_once("\n# Metrics of the command\n").unwrap();
    let section = section.split_once("\n# ").unwrap().0;
    assert_eq!(metrics_in(section), printed, "the guide explains every metric, and no other");
    let (_, rules) = section.split_once("```yaml\n").unwrap();
    let rules = rules.split_once("```").unwrap().0;
    let expressions: Vec<&str> =
        rules.lines().filter_map(|line| line.trim().strip_prefix("expr: ")).collect();
    assert_eq!(expressions.len(), rules.matches("alert: ").count());
    for expression in expressions {
        assert!(!metrics_in(expression).is_empty(), "{expression}");
    }
}
