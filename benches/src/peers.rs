//! Compares luagate with other libraries: `./dev bench peers`. Each peer is a separate program that runs the
//! same scenes on the same server. Writes `benches/peers/RESULTS.md` and `benches/peers/results.json`.

mod charts;
mod peer;
mod program;
mod record;
mod scene;
mod stays;
mod usage;

pub use charts::charts;

use crate::chart;
use crate::rounds::median;
use crate::server::Server;
use crate::version::version;
use peer::{PEERS, Peer};
use program::Program;
use record::{Figures, Record};
use scene::{SCENES, Scene};
use stays::Stay;
use std::path::Path;
use std::time::Duration;
use usage::{Glimpse, Monitor, Usage};

/// Other ports than the tests use. A Unix socket would not do: some peers cannot use one.
const PORTS: std::ops::Range<u32> = 21_000..21_500;

/// The duration of a scene after its lead-in.
const TIME: Duration = Duration::from_secs(2);

/// A scene that takes longer is aborted.
const BOUND: Duration = Duration::from_secs(60);

/// The duration of the preliminary run under MONITOR.
const GLIMPSE: Duration = Duration::from_secs(1);

/// How often each peer runs a scene. The best round counts, because other load on the machine can only slow a
/// peer.
const ROUNDS: usize = 3;

/// The length of the parts of an uncontended scene, in µs. Their median counts.
const PART: u64 = 250_000;

/// A separate server on a TCP port.
fn start_server() -> Server {
    let server = PORTS.clone().find_map(|port| {
        let mut server = Server::start(&[], &port.to_string()).expect("a server's binary");
        // If the port is in use, the server ends, and the next port is tried.
        server.becomes_ready().then(|| {
            server.url = format!("redis://127.0.0.1:{port}/");
            server
        })
    });
    server.expect("a free port")
}

/// Lets a peer run a scene, on a server without keys and scripts.
fn play(
    peer: &Peer,
    scene: &Scene,
    time: Duration,
    bound: Duration,
    server: &Server,
) -> Result<(Vec<Stay>, Usage, Usage), String> {
    let mut con = server.connection();
    redis::cmd("FLUSHALL").exec(&mut con).unwrap();
    redis::cmd("SCRIPT").arg("FLUSH").exec(&mut con).unwrap();
    let mut arguments = vec![server.url.clone()];
    arguments.extend(scene.arguments(time));
    let mut program = Program::start(peer, &arguments)?;
    let before = Usage::read(&mut con);
    let stays = program.play(bound)?;
    Ok((stays, before, Usage::read(&mut con)))
}

/// Which commands the peer sends, and which run in its scripts, as far as it gets. `measure` reports
/// failures.
fn glimpse(peer: &Peer, server: &Server) -> Glimpse {
    let monitor = Monitor::start(server.address()).unwrap();
    let _ = play(peer, &SCENES[1], GLIMPSE, 10 * GLIMPSE, server);
    monitor.stop()
}

fn measure(peer: &Peer, scene: &Scene, glimpse: &Glimpse, server: &Server) -> Result<Figures, String> {
    let time = TIME + Duration::from_micros(stays::LEAD_IN);
    let (all, before, after) = play(peer, scene, time, BOUND, server)?;
    if all.is_empty() {
        return Err("no worker acquired a permit".to_owned());
    }
    let pairs = all.len() as f64;
    let settled = stays::settled(&all);
    let is_contended = scene.workers > 1;
    let pairs_per_second = if scene.once {
        settled.len() as f64 / stays::span(&settled) as f64 * 1e6
    } else if is_contended {
        // After that, fewer and fewer workers ask.
        stays::within(&settled, TIME.as_micros() as u64) as f64 / TIME.as_secs_f64()
    } else {
        let parts = stays::in_parts(&settled, PART);
        median(parts.into_iter().map(|pairs| pairs as f64)) / PART as f64 * 1e6
    };
    let waits = stays::handovers(&settled, peer.limit(scene));
    let ms = |us: u64| us as f64 / 1e3;
    Ok(Figures {
        pairs_per_second,
        slowest_round: pairs_per_second,
        server_cpu_us_per_pair: after.cpu_us_since(&before) / pairs,
        commands_per_pair: after.commands_since(&before, glimpse) / pairs,
        wait_p50_ms: stays::percentile(&waits, 50).map(ms),
        wait_p99_ms: stays::percentile(&waits, 99).map(ms),
        longest_wait_ms: stays::longest_wait(&all).filter(|_| is_contended).map(ms),
        violations: stays::violations(&all, peer.limit(scene)),
    })
}

/// A scene of a peer, with all its rounds.
struct Take {
    peer: &'static Peer,
    scene: &'static Scene,
    rounds: Vec<Result<Figures, String>>,
}

impl Take {
    fn record(self) -> Record {
        let count = self.rounds.len();
        let (well, failed): (Vec<_>, Vec<_>) = self.rounds.into_iter().partition(Result::is_ok);
        let well: Vec<Figures> = well.into_iter().flatten().collect();
        let failed: Vec<String> = failed.into_iter().filter_map(Result::err).collect();
        let why = failed.last().map(|why| match failed.len() {
            some if some < count => format!("{why} (in {some} of {count} rounds)"),
            _ => why.clone(),
        });
        let notes = Vec::from_iter(self.peer.instead(self.scene).into_iter().chain(why));
        Record { peer: self.peer, scene: self.scene, figures: Figures::best(&well), note: notes.join("; ") }
    }
}

/// Lets all peers run in turns, round by round. An error is noted, and the next peer continues.
fn play_all(peers: Vec<&'static Peer>, server: &Server) -> Vec<Record> {
    let glimpses: Vec<Result<Glimpse, String>> = peers
        .iter()
        .map(|peer| {
            println!("{}: {}", peer.name, peer.version().unwrap_or_default());
            peer.prepare().map(|()| glimpse(peer, server))
        })
        .collect();
    let take = |peer: &'static Peer| SCENES.each_ref().map(|scene| (peer, scene));
    let takes = peers.into_iter().flat_map(take);
    let mut takes: Vec<Take> = takes.map(|(peer, scene)| Take { peer, scene, rounds: Vec::new() }).collect();
    for _ in 0..ROUNDS {
        for (place, take) in takes.iter_mut().enumerate() {
            let figures = match &glimpses[place / SCENES.len()] {
                Ok(glimpse) => measure(take.peer, take.scene, glimpse, server),
                Err(why) => Err(why.clone()),
            };
            let (peer, scene) = (take.peer.name, take.scene.name);
            match &figures {
                Ok(figures) => println!("{peer}, {scene}: {:.0} /s", figures.pairs_per_second),
                Err(why) => println!("{peer}, {scene}: {why}"),
            }
            take.rounds.push(figures);
        }
    }
    takes.into_iter().map(Take::record).collect()
}

/// With words: runs only peers whose name contains one of them, and writes nothing.
pub fn run(words: &[String]) -> std::io::Result<()> {
    let is_wanted = |peer: &&Peer| words.is_empty() || words.iter().any(|w| peer.name.contains(w));
    let wanted: Vec<&'static Peer> = PEERS.iter().filter(is_wanted).collect();
    if wanted.is_empty() {
        let names: Vec<&str> = PEERS.iter().map(|peer| peer.name).collect();
        println!("unknown peer; the peers are {}", names.join(", "));
        return Ok(());
    }
    let server = start_server();
    let name = version(&mut server.connection());
    let records = play_all(wanted, &server);
    if words.is_empty() {
        let results = Path::new("benches/peers/results.json");
        std::fs::write(results, record::list(&records, &name))?;
        chart::write(&charts(results)?)?;
        std::fs::write("benches/peers/RESULTS.md", record::page(&records, &name))?;
    }
    print!("{}", record::tables(&records));
    Ok(())
}
