//! The choices of an execution: which thread runs next, and what happens.

use std::ops::Range;

/// Decides each choice. Zero is the default: the current thread runs on, and nothing special happens.
pub(crate) trait Plan {
    /// Begins the next execution. `false`: there is no further one.
    fn begin(&mut self) -> bool;

    /// Chooses the next thread or event among `count` of them.
    fn next(&mut self, count: usize) -> usize;

    /// Chooses one of `count` values.
    fn value(&mut self, count: usize) -> usize;

    /// Only the present execution again.
    fn repeat(&self) -> Box<dyn Plan>;
}

/// All executions with at most `most` deviations from the default. Each choice other than zero is one
/// deviation.
pub(crate) struct Deviations {
    most: usize,
    /// The choices of the present execution, each with its number of options, up to the last one that may
    /// deviate.
    path: Vec<(usize, usize)>,
    position: usize,
    used: usize,
    has_begun: bool,
}

impl Deviations {
    pub(crate) fn new(most: usize) -> Deviations {
        Deviations { most, path: Vec::new(), position: 0, used: 0, has_begun: false }
    }
}

impl Plan for Deviations {
    fn begin(&mut self) -> bool {
        (self.position, self.used) = (0, 0);
        if !std::mem::replace(&mut self.has_begun, true) {
            return true;
        }
        let mut used = self.path.iter().filter(|(chosen, _)| *chosen > 0).count();
        while let Some((chosen, count)) = self.path.pop() {
            used -= usize::from(chosen > 0);
            if chosen + 1 < count && used < self.most {
                self.path.push((chosen + 1, count));
                return true;
            }
        }
        false
    }

    fn next(&mut self, count: usize) -> usize {
        let chosen = match self.path.get(self.position) {
            Some((chosen, expected)) => {
                assert_eq!(count, *expected, "an execution with the same choices was different");
                *chosen
            }
            None if self.used >= self.most => return 0,
            None => {
                self.path.push((0, count));
                0
            }
        };
        self.position += 1;
        self.used += usize::from(chosen > 0);
        chosen
    }

    fn value(&mut self, count: usize) -> usize {
        self.next(count)
    }

    fn repeat(&self) -> Box<dyn Plan> {
        Box::new(Deviations { most: 0, path: self.path.clone(), position: 0, used: 0, has_begun: false })
    }
}

/// A random execution from each seed.
pub(crate) struct Random {
    seeds: Range<u64>,
    present: u64,
    state: u64,
    /// The default is not taken with a chance of 1 in 2^n.
    calm: u32,
}

impl Random {
    pub(crate) fn new(seeds: Range<u64>) -> Random {
        Random { present: seeds.start, seeds, state: 0, calm: 0 }
    }

    /// SplitMix64.
    fn random(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut word = self.state;
        word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        word ^ (word >> 31)
    }
}

impl Plan for Random {
    fn begin(&mut self) -> bool {
        let Some(seed) = self.seeds.next() else {
            return false;
        };
        (self.present, self.state) = (seed, seed);
        self.state = self.random(); // seeds that are neighbours have different sequences
        self.calm = (self.random() % 6) as u32;
        true
    }

    fn next(&mut self, count: usize) -> usize {
        if self.random().trailing_zeros() >= self.calm { self.value(count) } else { 0 }
    }

    fn value(&mut self, count: usize) -> usize {
        (self.random() % count as u64) as usize
    }

    fn repeat(&self) -> Box<dyn Plan> {
        Box::new(Random::new(self.present..self.present + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The executions of a plan: three choices among three.
    fn executions(most: usize) -> Vec<[usize; 3]> {
        let mut plan = Deviations::new(most);
        let mut executions = Vec::new();
        while plan.begin() {
            executions.push([3, 3, 3].map(|count| plan.next(count)));
        }
        executions
    }

    #[test]
    fn each_execution_up_to_the_bound_is_run_once() {
        for most in 0..=4 {
            let mut run = executions(most);
            let all = (0..27).map(|number| [number / 9, number / 3 % 3, number % 3]);
            let expected: Vec<_> =
                all.filter(|path| path.iter().filter(|chosen| **chosen > 0).count() <= most).collect();
            run.sort_unstable();
            assert_eq!(run, expected);
        }
    }
}
