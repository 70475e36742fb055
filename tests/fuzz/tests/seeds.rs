//! Promise: no parser of foreign input breaks its promise on its seeds, on their beginnings, and on seeds
//! with a few other bytes. `./dev prove` searches for other inputs.

use luagate_fuzz::{TARGETS, Target};

/// Bytes that mean something to a parser, or are at the end of a range.
const BYTES: [u8; 16] = *b"\0\x7f\xff 0-9:\r\n{@%/?\"";

/// Numbers without order, always the same.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end.max(1)
    }
}

/// How many inputs are made of each seed.
const INPUTS: usize = 40;

fn check(target: &Target) {
    let mut numbers = Numbers(7);
    let seeds = (target.seeds)();
    assert!(!seeds.is_empty(), "{}", target.name);
    for seed in &seeds {
        (target.run)(seed);
        for _ in 0..INPUTS {
            let mut input = seed.clone();
            let place = numbers.below(input.len());
            match numbers.below(4) {
                0 => input.truncate(place),
                1 => input.insert(place, BYTES[numbers.below(BYTES.len())]),
                2 => input.extend_from_slice(&seeds[numbers.below(seeds.len())]),
                _ => input[place..]
                    .iter_mut()
                    .take(1)
                    .for_each(|byte| *byte = BYTES[numbers.below(BYTES.len())]),
            }
            (target.run)(&input);
        }
    }
}

#[test]
fn seeds_and_what_is_similar_keep_the_promise_of_each_target() {
    TARGETS.iter().for_each(check);
}
