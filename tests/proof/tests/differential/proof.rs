//! Runs random steps by seed, and prints the steps that lead to a difference.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::fmt::Debug;
use std::time::{SystemTime, UNIX_EPOCH};

/// A comparison of server and model by random steps that mean the same to both.
pub trait Layer {
    type Step: Clone + Debug;

    fn steps(&self, rng: &mut StdRng) -> Vec<Self::Step>;

    /// Runs these steps from an empty state. The error contains the index of the step with a difference, and
    /// the difference.
    fn run(&mut self, steps: &[Self::Step]) -> Result<(), (usize, String)>;
}

/// Runs this number of sequences. `LUAGATE_PROVE=long`: many more, from a seed by the clock. `LUAGATE_SEED`:
/// only that sequence.
pub fn prove<L: Layer>(layer: &mut L, name: &str, sequences: u64) {
    let seed = std::env::var("LUAGATE_SEED").ok().map(|seed| seed.parse().expect("LUAGATE_SEED is a number"));
    let long = std::env::var("LUAGATE_PROVE").is_ok_and(|form| form == "long");
    let (first, count) = match seed {
        Some(seed) => (seed, 1),
        None if long => {
            let clock = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
            (clock.as_secs() * 1_000_000, sequences * 20)
        }
        None => (1, sequences),
    };
    println!("{name}: {count} sequences, seeds from {first}");
    for seed in first..first + count {
        let _shown = ShownInPanic(seed);
        let steps = layer.steps(&mut StdRng::seed_from_u64(seed));
        let Err((at, difference)) = layer.run(&steps) else {
            continue;
        };
        let (steps, difference) = shrink(layer, &steps[..=at], difference);
        let shown: Vec<_> = steps.iter().map(|step| format!("  {step:?}")).collect();
        panic!(
            "{name}: server and model differ; repeat with LUAGATE_SEED={seed}\nafter\n{}\n{difference}",
            shown.join("\n")
        );
    }
}

/// Prints the seed if something other than a comparison fails.
struct ShownInPanic(u64);

impl Drop for ShownInPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("the seed was {}", self.0);
        }
    }
}

/// Leaves out steps while a difference remains.
fn shrink<L: Layer>(layer: &mut L, steps: &[L::Step], difference: String) -> (Vec<L::Step>, String) {
    let (mut steps, mut difference) = (steps.to_vec(), difference);
    let mut part = steps.len() / 2;
    while part > 0 {
        let mut from = 0;
        while from < steps.len() {
            let mut fewer = steps.clone();
            fewer.drain(from..(from + part).min(steps.len()));
            match layer.run(&fewer) {
                Err((at, found)) => {
                    fewer.truncate(at + 1);
                    (steps, difference) = (fewer, found);
                }
                Ok(()) => from += part,
            }
        }
        part /= 2;
    }
    (steps, difference)
}

pub fn pick<'a, T>(rng: &mut StdRng, list: &'a [T]) -> &'a T {
    &list[rng.random_range(0..list.len())]
}

/// True once in `times` times.
pub fn once_in(rng: &mut StdRng, times: u32) -> bool {
    rng.random_range(0..times) == 0
}
