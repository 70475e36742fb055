//! What Redis removes from a list.

use crate::store::{Bytes, int};
use std::collections::VecDeque;

/// LREM: the first `most` of these elements, the last ones where it is negative, all where it is 0.
pub(crate) fn remove(list: &mut VecDeque<Bytes>, most: i64, element: &[u8]) -> i64 {
    let mut left = if most == 0 { i64::MAX } else { most.abs() };
    let before = list.len();
    let mut keep = |other: &Bytes| {
        let goes = left > 0 && other == element;
        left -= i64::from(goes);
        !goes
    };
    if most < 0 {
        let kept: Vec<Bytes> = list.drain(..).rev().filter(&mut keep).collect();
        list.extend(kept.into_iter().rev());
    } else {
        list.retain(keep);
    }
    int(before - list.len())
}
