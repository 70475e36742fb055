//! The peers: libraries that a user might choose instead, each with a program that runs the scenes.

use super::program::gist;
use super::scene::Scene;
use std::process::Command;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/peers");

/// The exit code of `prepare` if the machine lacks the language.
const MISSING: i32 = 77;

#[derive(Debug)]
pub struct Peer {
    pub name: &'static str,
    pub language: Language,
    /// The folder of its program.
    folder: &'static str,
    /// The last argument of its program.
    object: Option<&'static str>,
    /// The file with its version, and the text before the version in that file.
    version: (&'static str, &'static str),
    is_mutex: bool,
    /// The features that it lacks compared with luagate, and those that it adds.
    pub differs: &'static str,
}

#[derive(Clone, Copy, Debug)]
pub enum Language {
    Rust,
    Python,
    JavaScript,
    Go,
    Java,
}

impl Language {
    pub fn name(self) -> &'static str {
        match self {
            Language::Rust => "Rust",
            Language::Python => "Python",
            Language::JavaScript => "JavaScript",
            Language::Go => "Go",
            Language::Java => "Java",
        }
    }

    /// The folder with the language's `prepare` and `run`.
    fn folder(self) -> String {
        format!("{FOLDER}/languages/{}", self.name().to_lowercase())
    }
}

impl Peer {
    /// Fetches its packages and builds its program, or returns why that is not possible.
    pub fn prepare(&self) -> Result<(), String> {
        let mut command = Command::new(format!("{}/prepare", self.language.folder()));
        let output = command.arg(self.folder).output();
        let output = output.map_err(|error| error.to_string())?;
        let stdout = String::from_utf8_lossy(&output.stdout);
        match output.status.code() {
            Some(0) => Ok(()),
            Some(MISSING) => Err(format!("skipped: {}", gist(&stdout))),
            _ => {
                let stderr = String::from_utf8_lossy(&output.stderr);
                let said = gist(&format!("{stdout} {stderr}"));
                Err(format!("cannot be built: {said}"))
            }
        }
    }

    /// Its program with these arguments.
    pub fn run(&self, arguments: &[String]) -> Command {
        let mut command = Command::new(format!("{}/run", self.language.folder()));
        command.arg(self.folder).args(arguments).args(self.object);
        command
    }

    pub fn version(&self) -> Option<String> {
        let (file, before) = self.version;
        let text = std::fs::read_to_string(format!("{FOLDER}/{}/{file}", self.folder)).ok()?;
        let (_, from) = text.split_once(before)?;
        let is_part = |c: char| c.is_ascii_alphanumeric() || ".-+".contains(c);
        Some(from.split(|c| !is_part(c)).next()?.to_owned())
    }

    /// How many workers may hold each of its locks.
    pub fn limit(&self, scene: &Scene) -> usize {
        if self.is_mutex { 1 } else { scene.permits as usize }
    }

    /// How it runs a scene that it cannot run as the others do.
    pub fn instead(&self, scene: &Scene) -> Option<String> {
        let differs = self.is_mutex && scene.permits > 1;
        differs.then(|| format!("{} locks; each turn picks one at random", scene.permits))
    }
}

/// A lock. It uses as many locks as a scene has permits.
const fn mutex(
    name: &'static str,
    language: Language,
    version: (&'static str, &'static str),
    differs: &'static str,
) -> Peer {
    Peer { name, language, folder: name, object: None, version, is_mutex: true, differs }
}

const fn semaphore(
    name: &'static str,
    language: Language,
    version: (&'static str, &'static str),
    differs: &'static str,
) -> Peer {
    Peer { is_mutex: false, ..mutex(name, language, version, differs) }
}

/// A client of luagate in another language.
const fn of_luagate(name: &'static str, language: Language) -> Peer {
    let version = ("../../../Cargo.toml", "\nversion = \"");
    semaphore(name, language, version, "uses the same scripts as luagate")
}

const fn of_redisson(name: &'static str, is_mutex: bool, differs: &'static str) -> Peer {
    Peer {
        folder: "redisson",
        object: Some(name),
        is_mutex,
        ..mutex(
            name,
            Language::Java,
            ("pom.xml", "<artifactId>redisson</artifactId>\n      <version>"),
            differs,
        )
    }
}

pub const PEERS: [Peer; 21] = [
    semaphore("luagate", Language::Rust, ("../../../Cargo.toml", "\nversion = \""), ""),
    semaphore(
        "luagate-tasks",
        Language::Rust,
        ("../../../Cargo.toml", "\nversion = \""),
        "the async form of `luagate`: each worker is a task, on one connection",
    ),
    of_luagate("luagate-python", Language::Python),
    of_luagate("luagate-asyncio", Language::Python),
    of_luagate("luagate-javascript", Language::JavaScript),
    of_luagate("luagate-go", Language::Go),
    of_luagate("luagate-java", Language::Java),
    mutex(
        "rlock",
        Language::Rust,
        ("Cargo.toml", "rlock = \"="),
        "lacks: semaphores, a queue (it retries every 100 ms), fences. Adds: async; several keys of any kind at once",
    ),
    mutex(
        "rslock",
        Language::Rust,
        ("Cargo.toml", "rslock = { version = \"="),
        "lacks: semaphores, a queue (three tries up to 200 ms apart), fences, automatic renewal. Adds: async; voting of several servers",
    ),
    semaphore(
        "distributed-lock-redis",
        Language::Rust,
        ("Cargo.toml", "distributed-lock-redis = \"="),
        "lacks: a queue (it retries after 10 to 200 ms), fences. Adds: async; voting of several servers, for its locks",
    ),
    semaphore(
        "redis-semaphore",
        Language::JavaScript,
        ("package.json", "\"redis-semaphore\": \""),
        "lacks: a queue (it retries every 10 ms), fences; leases end by the clients' clocks. Adds: voting of several servers",
    ),
    mutex(
        "redlock",
        Language::JavaScript,
        ("package.json", "\"redlock\": \""),
        "lacks: semaphores, a queue (it retries every 200 to 300 ms), fences, automatic renewal. Adds: voting of several servers",
    ),
    mutex(
        "redis-py",
        Language::Python,
        ("requirements.txt", "redis=="),
        "lacks: semaphores, a queue (it retries every 100 ms), fences, automatic renewal",
    ),
    mutex(
        "python-redis-lock",
        Language::Python,
        ("requirements.txt", "python-redis-lock=="),
        "lacks: semaphores, places in line (a woken waiter may be overtaken), fences; each waiter keeps a connection",
    ),
    mutex(
        "redsync",
        Language::Go,
        ("go.mod", "redsync/v4 v"),
        "lacks: semaphores, a queue (32 tries 50 to 250 ms apart), fences, automatic renewal. Adds: voting of several servers",
    ),
    mutex(
        "rueidislock",
        Language::Go,
        ("go.mod", "redis/rueidis v"),
        "lacks: semaphores, fences, places in line (a release wakes one waiter of each process, which may be overtaken); leases end by the clients' clocks. Adds: voting of several servers",
    ),
    mutex(
        "redislock",
        Language::Go,
        ("go.mod", "bsm/redislock v"),
        "lacks: semaphores, a queue (it retries every 100 ms), fences, automatic renewal",
    ),
    of_redisson(
        "RSemaphore",
        false,
        "lacks: leases (the permit of a crashed holder is lost until a program adds it again), places in line (a woken waiter may be overtaken), fences. Adds: async",
    ),
    of_redisson(
        "RPermitExpirableSemaphore",
        false,
        "lacks: places in line (a woken waiter may be overtaken), fences, automatic renewal. Adds: async",
    ),
    of_redisson(
        "RLock",
        true,
        "lacks: semaphores, places in line (a woken waiter may be overtaken), fences (RFencedLock has them). Adds: re-entrant locks, async",
    ),
    of_redisson(
        "RFairLock",
        true,
        "lacks: semaphores, fences; a crashed waiter may block the line for five minutes. Has a queue like luagate. Adds: re-entrant locks, async",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_peer_has_a_version_that_is_pinned() {
        for peer in &PEERS {
            let version = peer.version().unwrap_or_default();
            let is_number = version.split('.').all(|part| part.parse::<u32>().is_ok());
            assert!(is_number && version.contains('.'), "{}: {version}", peer.name);
        }
    }
}
