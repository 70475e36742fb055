//! Which mutant of the protocol is active, in a build that contains all of them.

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// A small change of `crates/core/src`.
#[derive(Debug)]
pub struct Mutant {
    pub file: &'static str,
    pub line: usize,
    pub function: &'static str,
    pub before: &'static str,
    pub after: &'static str,
    /// Which kind of change it is, and which one of this kind in the function, from 1.
    pub kind: &'static str,
    pub ordinal: usize,
}

impl fmt::Display for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Mutant { file, function, kind, ordinal, .. } = self;
        write!(f, "{file}: {function}: {kind}, {ordinal}")
    }
}

/// 0: none.
static ACTIVE: AtomicUsize = AtomicUsize::new(0);
static LOOKS: AtomicU64 = AtomicU64::new(0);

/// The number of the name of the planted fault; 0: none.
static PLANTED: AtomicU64 = AtomicU64::new(0);

/// A machine that evaluates mutants this often is in an endless loop.
const ENDLESS: u64 = 300_000_000;

/// A recursion that uses this many bytes of the stack is endless. A thread has twice as many.
const DEEP: usize = 1 << 20;

thread_local! {
    /// The position of the stack when a mutant was evaluated first.
    static STACK: usize = stack();
}

fn stack() -> usize {
    let here = 0u8;
    (&raw const here).addr()
}

/// Whether the mutant of this number is active.
///
/// # Panics
/// In an endless loop or recursion, if a mutant is active.
pub(crate) fn is(number: usize) -> bool {
    let active = ACTIVE.load(Ordering::Relaxed);
    if active != 0 {
        check_end();
    }
    active == number
}

/// Whether the fault of this name is planted.
///
/// # Panics
/// In an endless loop or recursion, if a fault is planted.
pub(crate) fn is_planted(name: &str) -> bool {
    let planted = PLANTED.load(Ordering::Relaxed);
    if planted == 0 {
        return false;
    }
    check_end();
    planted == number_of(name)
}

fn check_end() {
    let looks = LOOKS.fetch_add(1, Ordering::Relaxed);
    let is_deep = || STACK.with(|first| first.abs_diff(stack()) > DEEP);
    assert!(looks < ENDLESS && !(looks.is_multiple_of(512) && is_deep()), "endless loop or recursion");
}

/// FNV-1a.
fn number_of(name: &str) -> u64 {
    name.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Plants the fault of this name. `None`: none.
pub fn plant(name: Option<&str>) {
    PLANTED.store(name.map_or(0, number_of), Ordering::Relaxed);
    LOOKS.store(0, Ordering::Relaxed);
}

/// Activates one mutant; 0: none.
pub fn activate(number: usize) {
    ACTIVE.store(number, Ordering::Relaxed);
    LOOKS.store(0, Ordering::Relaxed);
}

/// All mutants; the first has the number 1.
pub fn mutants() -> &'static [Mutant] {
    crate::MUTANTS
}

/// Runs the unit tests of the protocol.
///
/// # Panics
/// When one fails.
pub fn run_unit_tests() {
    crate::UNIT_TESTS.iter().for_each(|test| test());
}
