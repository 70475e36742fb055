//! Rounds: two values measured in turns.

/// The medians of both, and the median of their ratios.
#[derive(Clone, Copy, Debug)]
pub struct Compared {
    pub ours: f64,
    pub theirs: f64,
    pub ratio: f64,
}

/// Measures both this number of times, in turns.
pub fn compare(rounds: usize, mut ours: impl FnMut() -> f64, mut theirs: impl FnMut() -> f64) -> Compared {
    ours(); // warms the caches
    theirs();
    let pairs: Vec<(f64, f64)> = (0..rounds).map(|_| (ours(), theirs())).collect();
    Compared {
        ours: median(pairs.iter().map(|pair| pair.0)),
        theirs: median(pairs.iter().map(|pair| pair.1)),
        ratio: median(pairs.iter().map(|pair| pair.0 / pair.1)),
    }
}

pub fn median(numbers: impl Iterator<Item = f64>) -> f64 {
    let mut numbers: Vec<f64> = numbers.collect();
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}
