//! The peers: what a user might pick instead, each with a program that plays the scenes.

use super::program::gist;
use super::scene::Scene;
use std::process::Command;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/peers");

/// What `prepare` ends with where the machine lacks the language.
const MISSING: i32 = 77;

#[derive(Debug)]
pub struct Peer {
    pub name: &'static str,
    pub language: Language,
    /// Of its program.
    folder: &'static str,
    /// A last argument of its program.
    object: Option<&'static str>,
    /// The file that says its version, and what stands in front of it there.
    version: (&'static str, &'static str),
    is_mutex: bool,
    /// What it does less than luagate, and what more.
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

    /// Where the language's `prepare` and `run` are.
    fn folder(self) -> String {
        format!("{FOLDER}/languages/{}", self.name().to_lowercase())
    }
}

impl Peer {
    /// Brings its packages and builds its program. Otherwise says why not.
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

    /// Its program, with these arguments.
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

    /// How many may be inside of each of its locks.
    pub fn limit(&self, scene: &Scene) -> usize {
        if self.is_mutex { 1 } else { scene.permits as usize }
    }

    /// Where it cannot play a scene as the others do: how it plays it.
    pub fn instead(&self, scene: &Scene) -> Option<String> {
        let differs = self.is_mutex && scene.permits > 1;
        differs.then(|| format!("{} locks, each turn picks one at random", scene.permits))
    }
}

/// A lock, of which as many are taken as a scene has permits.
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

const fn of_redisson(name: &'static str, is_mutex: bool, differs: &'static str) -> Peer {
    Peer {
        folder: "redisson",
        object: Some(name),
        is_mutex,
        ..mutex(name, Language::Java, ("pom.xml", "<artifactId>redisson</artifactId>\n      <version>"), differs)
    }
}

pub const PEERS: [Peer; 15] = [
    semaphore("luagate", Language::Rust, ("../../../Cargo.toml", "\nversion = \""), ""),
    semaphore(
        "luagate-python",
        Language::Python,
        ("../../../Cargo.toml", "\nversion = \""),
        "less: no renewal by itself. The same scripts as above",
    ),
    mutex(
        "rlock",
        Language::Rust,
        ("Cargo.toml", "rlock = \"="),
        "less: no semaphore, no queue (a try every 100 ms), no fence. More: async; several keys at once of any kind",
    ),
    mutex(
        "rslock",
        Language::Rust,
        ("Cargo.toml", "rslock = { version = \"="),
        "less: no semaphore, no queue (three tries up to 200 ms apart), no fence, no renewal by itself. More: async; voting of several servers",
    ),
    semaphore(
        "distributed-lock-redis",
        Language::Rust,
        ("Cargo.toml", "distributed-lock-redis = \"="),
        "less: no queue (tries 10 to 200 ms apart), no fence. More: async; voting of several servers, for its locks",
    ),
    semaphore(
        "redis-semaphore",
        Language::JavaScript,
        ("package.json", "\"redis-semaphore\": \""),
        "less: no queue (a try every 10 ms), no fence; leases end by the clients' clocks. More: voting of several servers",
    ),
    mutex(
        "redis-py",
        Language::Python,
        ("requirements.txt", "redis=="),
        "less: no semaphore, no queue (a try every 100 ms), no fence, no renewal by itself",
    ),
    mutex(
        "python-redis-lock",
        Language::Python,
        ("requirements.txt", "python-redis-lock=="),
        "less: no semaphore, no place in line (who is woken may be overtaken), no fence; each waiter keeps a connection",
    ),
    mutex(
        "redsync",
        Language::Go,
        ("go.mod", "redsync/v4 v"),
        "less: no semaphore, no queue (32 tries 50 to 250 ms apart), no fence, no renewal by itself. More: voting of several servers",
    ),
    mutex(
        "rueidislock",
        Language::Go,
        ("go.mod", "redis/rueidis v"),
        "less: no semaphore, no fence, no place in line (a release wakes one waiter of each process, which may be overtaken); leases end by the clients' clocks. More: voting of several servers",
    ),
    mutex(
        "redislock",
        Language::Go,
        ("go.mod", "bsm/redislock v"),
        "less: no semaphore, no queue (a try every 100 ms), no fence, no renewal by itself",
    ),
    of_redisson(
        "RSemaphore",
        false,
        "less: no lease (what a crashed holder had is gone until somebody adds it), no place in line (who is woken may be overtaken), no fence. More: async",
    ),
    of_redisson(
        "RPermitExpirableSemaphore",
        false,
        "less: no place in line (who is woken may be overtaken), no fence, no renewal by itself. More: async",
    ),
    of_redisson(
        "RLock",
        true,
        "less: no semaphore, no place in line (who is woken may be overtaken), no fence (RFencedLock has one). More: re-entrant, async",
    ),
    of_redisson(
        "RFairLock",
        true,
        "less: no semaphore, no fence; a crashed waiter may hold up the line for five minutes. A queue, as here. More: re-entrant, async",
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
