//! The gate and its settings.

use crate::runtime::{self, wait};
use crate::{CountDownLatch, Counters, Mutex, RwLock, Semaphore, Several, Warning};
use luagate::aio;
use luagate::errors::CallError;
use luagate::redis::Client;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The maximum time that dropping a permit blocks.
const DROP_BOUND: Duration = Duration::from_millis(100);

#[derive(Clone)]
pub struct Gate {
    pub(crate) aio: aio::Gate,
    pub(crate) origin: Origin,
}

/// The gates of permits, for which dropping them waits.
#[derive(Clone)]
pub struct Origin {
    gates: Arc<[aio::Gate]>,
    drop_waits: bool,
}

impl Origin {
    fn new(gate: &aio::Gate, drop_waits: bool) -> Origin {
        Origin { gates: Arc::new([gate.clone()]), drop_waits }
    }

    /// The gates of several semaphores.
    pub(crate) fn of_all<'a>(origins: impl Iterator<Item = &'a Origin>) -> Origin {
        let origins: Vec<_> = origins.collect();
        Origin {
            gates: origins.iter().flat_map(|origin| origin.gates.iter().cloned()).collect(),
            drop_waits: origins.iter().all(|origin| origin.drop_waits),
        }
    }

    /// After a drop: blocks until its release is confirmed, for at most 100 ms.
    pub(crate) fn wait_after_drop(&self) {
        if self.drop_waits && !runtime::is_forked() {
            wait(async {
                let closed = self.gates.iter().map(|gate| gate.clone().close());
                let _ = tokio::time::timeout(DROP_BOUND, futures_util::future::join_all(closed)).await;
            });
        }
    }
}

impl Gate {
    pub fn open(url: &str) -> Result<Gate, CallError> {
        Gate::builder(url).open()
    }

    pub fn builder(url: &str) -> GateBuilder {
        GateBuilder::new(aio::Gate::builder(url))
    }

    pub fn builder_with(client: Client) -> GateBuilder {
        GateBuilder::new(aio::Gate::builder_with(client))
    }

    pub fn semaphore(&self, name: &str, limit: u32) -> Semaphore {
        Semaphore::new(self.aio.semaphore(name, limit), &self.origin)
    }

    pub fn stored_semaphore(&self, name: &str) -> Semaphore {
        Semaphore::new(self.aio.stored_semaphore(name), &self.origin)
    }

    pub fn mutex(&self, name: &str) -> Mutex {
        Mutex::new(self.aio.mutex(name), &self.origin)
    }

    pub fn several<'a>(&self, semaphores: impl IntoIterator<Item = (&'a Semaphore, u32)>) -> Several {
        let semaphores: Vec<_> = semaphores.into_iter().collect();
        let several = self.aio.several(semaphores.iter().map(|(semaphore, permits)| (semaphore.aio(), *permits)));
        let origins = semaphores.iter().map(|(semaphore, _)| semaphore.origin());
        Several::new(several, &Origin::of_all(origins))
    }

    pub fn mutexes<N: AsRef<str>>(&self, names: impl IntoIterator<Item = N>) -> Several {
        Several::new(self.aio.mutexes(names), &self.origin)
    }

    pub fn rwlock(&self, name: &str) -> RwLock {
        RwLock::new(self.aio.rwlock(name), &self.origin)
    }

    pub fn latch(&self, name: &str, count: u32) -> CountDownLatch {
        CountDownLatch::new(self.aio.latch(name, count))
    }

    pub fn open_connections(&self) -> usize {
        self.aio.open_connections()
    }

    pub fn counters(&self) -> Counters {
        self.aio.counters()
    }

    pub fn warnings(&self) -> Vec<Warning> {
        self.aio.warnings()
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.aio.fmt(f)
    }
}

#[derive(Debug)]
#[must_use = "nothing is opened before `open`"]
pub struct GateBuilder {
    aio: aio::GateBuilder,
    drop_waits: bool,
}

/// Settings that are passed on.
macro_rules! settings {
    ($($name:ident($($argument:ident: $type:ty),*))*) => {
        $(pub fn $name(self, $($argument: $type),*) -> GateBuilder {
            GateBuilder { aio: self.aio.$name($($argument),*), ..self }
        })*
    };
}

impl GateBuilder {
    pub(crate) fn new(aio: aio::GateBuilder) -> GateBuilder {
        GateBuilder { aio, drop_waits: true }
    }

    pub fn cluster<S: AsRef<str>>(nodes: &[S]) -> GateBuilder {
        GateBuilder::new(aio::GateBuilder::cluster(nodes))
    }

    pub fn sentinel<S: AsRef<str>>(sentinels: &[S], master: &str, like: &str) -> GateBuilder {
        GateBuilder::new(aio::GateBuilder::sentinel(sentinels, master, like))
    }

    settings! {
        prefix(prefix: &str)
        label(label: &str)
        root_certificates(pem: impl AsRef<[u8]>)
        client_certificate(chain: impl AsRef<[u8]>, key: impl AsRef<[u8]>)
        connect_timeout(timeout: Duration)
        read_timeout(timeout: Duration)
        outage(outage: Duration)
        min_replicas(count: u32, timeout: Duration)
    }

    pub fn connections(self, _most: usize) -> GateBuilder {
        self
    }

    pub fn write_timeout(self, _timeout: Duration) -> GateBuilder {
        self
    }

    pub fn drop_in_background(self) -> GateBuilder {
        GateBuilder { drop_waits: false, ..self }
    }

    pub fn open(self) -> Result<Gate, CallError> {
        let aio = wait(self.aio.open())?;
        Ok(Gate { origin: Origin::new(&aio, self.drop_waits), aio })
    }
}
