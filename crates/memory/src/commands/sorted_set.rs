//! Commands for sorted sets.

use super::range::{Limit, span};
use crate::reply::{Bytes, Reply, SYNTAX, bulk, integer, number, wrong_arity};
use crate::sorted_set::{Score, number_text, parse_lex_bound, parse_score, parse_score_bound};
use crate::store::Store;
use redis::Value;
use std::ops::RangeBounds;

pub(super) fn execute(store: &mut Store, command: &str, arguments: &[Bytes]) -> Reply {
    Ok(match (command, arguments) {
        ("ZADD", [key, options @ ..]) => add(store, key, options)?,
        ("ZREM", [key, members @ ..]) => number(store.change_sorted_set(key, |set| {
            let removed = members.iter().filter(|member| set.remove(member));
            removed.count()
        })?),
        ("ZCARD", [key]) => number(store.sorted_set(key)?.order.len()),
        ("ZSCORE", [key, member]) => {
            let score = store.sorted_set(key)?.scores.get(member);
            score.map_or(Value::Nil, |score| bulk(number_text(score.value())))
        }
        ("ZRANK", [key, member]) => {
            let set = store.sorted_set(key)?;
            let rank = |score: &Score| set.order.range(..(*score, member.clone())).count();
            let score = set.scores.get(member);
            score.map_or(Value::Nil, |score| number(rank(score)))
        }
        ("ZRANK", [_, _, _]) => return Err(SYNTAX.to_owned()),
        ("ZCOUNT", [key, min, max]) => number(by_score(store, key, min, max)?.count()),
        ("ZRANGE" | "ZREVRANGE", [key, first, last, options @ ..]) => {
            let (first, last) = (integer(first)?, integer(last)?);
            let scores = match options {
                [] => false,
                [word] if word.eq_ignore_ascii_case(b"WITHSCORES") => true,
                _ => return Err(SYNTAX.to_owned()),
            };
            let rows = &store.sorted_set(key)?.order;
            let (skip, take) = span(first, last, rows.len());
            match command {
                "ZRANGE" => listed(rows.iter().skip(skip).take(take), scores),
                _ => listed(rows.iter().rev().skip(skip).take(take), scores),
            }
        }
        ("ZRANGEBYSCORE", [key, min, max, options @ ..])
        | ("ZREVRANGEBYSCORE", [key, max, min, options @ ..]) => {
            let (scores, limit) = Limit::parse(options)?;
            let rows = by_score(store, key, min, max)?;
            match command {
                "ZRANGEBYSCORE" => listed(limit.apply(rows), scores),
                _ => listed(limit.apply(rows.rev()), scores),
            }
        }
        ("ZRANGEBYLEX", [key, min, max, options @ ..]) => by_lex(store, key, min, max, options)?,
        _ => return Err(wrong_arity(command)),
    })
}

/// ZADD with the options that the scripts use. XX changes only existing members, GT only increases scores,
/// and with CH the reply also counts changed scores.
fn add(store: &mut Store, key: &[u8], mut arguments: &[Bytes]) -> Reply {
    let (mut xx, mut gt, mut ch) = (false, false, false);
    while let [option, rest @ ..] = arguments {
        match option.to_ascii_uppercase().as_slice() {
            b"XX" => xx = true,
            b"GT" => gt = true,
            b"CH" => ch = true,
            _ => break,
        }
        arguments = rest;
    }
    let (pairs @ [_, ..], []) = arguments.as_chunks() else {
        return Err(SYNTAX.to_owned());
    };
    let pairs = pairs.iter().map(|[score, member]| Ok((parse_score(score)?, member)));
    let pairs: Vec<_> = pairs.collect::<Result<_, String>>()?;
    let counted = store.change_sorted_set(key, |set| {
        let mut counted = 0;
        for (score, member) in pairs {
            let is_counted = match set.scores.get(member) {
                None if xx => continue,
                Some(old) if gt && score <= *old => continue,
                None => true,
                Some(old) => ch && score != *old,
            };
            counted += i64::from(is_counted);
            set.insert(member, score);
        }
        counted
    })?;
    Ok(number(counted))
}

fn by_score<'a>(
    store: &'a Store,
    key: &[u8],
    min: &[u8],
    max: &[u8],
) -> Result<impl DoubleEndedIterator<Item = &'a (Score, Bytes)>, String> {
    let range = (parse_score_bound(min)?, parse_score_bound(max)?);
    let rows = store.sorted_set(key)?.order.iter();
    Ok(rows.filter(move |(score, _)| range.contains(&score.value())))
}

fn by_lex(store: &Store, key: &[u8], min: &[u8], max: &[u8], options: &[Bytes]) -> Reply {
    let (scores, limit) = Limit::parse(options)?;
    if scores {
        let why = "WITHSCORES not supported in combination with BYLEX";
        return Err(format!("{SYNTAX}, {why}"));
    }
    let range = (parse_lex_bound(min)?, parse_lex_bound(max)?);
    let is_empty = min == b"+" || max == b"-";
    let rows = store.sorted_set(key)?.order.iter();
    let rows = rows.filter(|(_, member)| !is_empty && range.contains(member));
    Ok(listed(limit.apply(rows), false))
}

fn listed<'a>(rows: impl Iterator<Item = &'a (Score, Bytes)>, scores: bool) -> Value {
    let mut list = Vec::new();
    for (score, member) in rows {
        list.push(bulk(member.clone()));
        if scores {
            list.push(bulk(number_text(score.value())));
        }
    }
    Value::Array(list)
}
