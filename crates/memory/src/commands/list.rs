//! Commands for lists.

use super::range::span;
use crate::reply::{Bytes, Reply, SYNTAX, array, integer, number, wrong_arity};
use crate::store::Store;
use redis::Value;
use std::collections::VecDeque;

pub(super) fn execute(store: &mut Store, command: &str, arguments: &[Bytes]) -> Reply {
    Ok(match (command, arguments) {
        ("LLEN", [key]) => number(store.list(key)?.len()),
        ("LPOS", [key, element]) => {
            let mut list = store.list(key)?.iter();
            let index = list.position(|other| other == element);
            index.map_or(Value::Nil, number)
        }
        ("LPOS", [_, _, _]) => return Err(SYNTAX.to_owned()),
        ("LRANGE", [key, first, last]) => {
            let (first, last) = (integer(first)?, integer(last)?);
            let list = store.list(key)?;
            let (skip, take) = span(first, last, list.len());
            array(list.iter().skip(skip).take(take))
        }
        ("LPUSH", [key, elements @ ..]) => number(store.change_list(key, |list| {
            for element in elements {
                list.push_front(element.clone());
            }
            list.len()
        })?),
        ("LREM", [key, count, element]) => {
            let count = integer(count)?;
            if count == i64::MIN {
                let most = i64::MAX;
                let text = "ERR value is out of range, value must between";
                return Err(format!("{text} -{most} and {most}"));
            }
            number(store.change_list(key, |list| remove(list, count, element))?)
        }
        ("LTRIM", [key, first, last]) => {
            let (first, last) = (integer(first)?, integer(last)?);
            store.change_list(key, |list| {
                let (skip, take) = span(first, last, list.len());
                list.truncate(skip + take);
                list.drain(..skip.min(list.len()));
            })?;
            Value::Okay
        }
        _ => return Err(wrong_arity(command)),
    })
}

/// LREM: removes up to `count` elements equal to this one, from the end if `count` is negative, all of them
/// if it is 0.
fn remove(list: &mut VecDeque<Bytes>, count: i64, element: &[u8]) -> usize {
    let mut left = if count == 0 { i64::MAX } else { count.abs() };
    let before = list.len();
    let mut keep = |other: &Bytes| {
        let is_removed = left > 0 && other == element;
        left -= i64::from(is_removed);
        !is_removed
    };
    if count < 0 {
        let kept: Vec<Bytes> = list.drain(..).rev().filter(&mut keep).collect();
        list.extend(kept.into_iter().rev());
    } else {
        list.retain(keep);
    }
    before - list.len()
}
