//! Promise: names may contain any bytes. Every sequence of calls has the same results as on a plain list.

use super::{group, recent};
use crate::support::Server;

use luagate::errors::CallError;
use std::collections::BTreeSet;

#[test]
fn every_byte_is_kept_and_found() {
    let server = Server::any();
    let (recent, group) = (recent(&server).keep(1_000), group(&server));
    let single: Vec<[u8; 1]> = (0..=255).map(|byte| [byte]).collect();
    for contact in &single {
        recent.add(contact).unwrap();
    }
    assert_eq!(group.add(&single).unwrap(), 256);
    for byte in &single {
        let members = group.matching_bytes(byte, 10).unwrap();
        assert_eq!(members, [byte]);
        let contacts = recent.matching_bytes(byte, 10).unwrap();
        let of_either_case = 1 + usize::from(byte[0].is_ascii_alphabetic());
        assert_eq!(contacts.len(), of_either_case, "{byte:?}");
        assert!(contacts.contains(&byte.to_vec()));
    }
}

/// Pseudo-random numbers, the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }

    /// Up to three bytes from a small set, so that they repeat. It contains bytes that end texts, invalid UTF-8, the
    /// highest byte, and digits, because Redis stores numbers in another encoding.
    fn bytes(&mut self) -> Vec<u8> {
        let kinds = b"\0\n aAzZ[`019-\x7f\x80\xc3\xa9\xfe\xff";
        let length = self.below(4);
        (0..length).map(|_| kinds[self.below(kinds.len())]).collect()
    }
}

#[test]
fn recent_contacts_behave_like_a_plain_list() {
    let server = Server::any();
    let recent = recent(&server);
    let mut model: Vec<Vec<u8>> = Vec::new(); // newest first
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for _ in 0..20_000 {
        let bytes = random.bytes();
        match random.below(4) {
            0 | 1 => {
                let keep = [5, 40, 1_000][random.below(3)];
                model.retain(|contact| *contact != bytes);
                model.insert(0, bytes.clone());
                model.truncate(keep);
                let kept = recent.clone().keep(keep as u32).add(&bytes).unwrap();
                assert_eq!(kept as usize, model.len(), "{bytes:?}");
            }
            2 => {
                let before = model.len();
                model.retain(|contact| *contact != bytes);
                let was_there = recent.remove(&bytes).unwrap();
                assert_eq!(was_there, model.len() < before, "{bytes:?}");
            }
            _ => {
                let count = 1 + random.below(20);
                let begins = |contact: &&Vec<u8>| {
                    let start = contact.get(..bytes.len());
                    start.is_some_and(|start| start.eq_ignore_ascii_case(&bytes))
                };
                let expected: Vec<_> = model.iter().filter(begins).take(count).cloned().collect();
                let found = recent.matching_bytes(&bytes, count as u32).unwrap();
                assert_eq!(found, expected, "{bytes:?}");
            }
        }
    }
}

#[test]
fn members_behave_like_a_plain_sorted_set() {
    let server = Server::any();
    let group = group(&server);
    let mut model: BTreeSet<Vec<u8>> = BTreeSet::new();
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    for _ in 0..20_000 {
        let bytes = random.bytes();
        let several: Vec<Vec<u8>> = (0..random.below(6)).map(|_| random.bytes()).collect();
        match random.below(4) {
            0 => {
                let new = several.iter().filter(|m| model.insert((*m).clone()));
                let new = new.count();
                assert_eq!(group.add(&several).unwrap() as usize, new, "{several:?}");
            }
            1 => {
                let gone = several.iter().filter(|m| model.remove(*m)).count();
                assert_eq!(group.remove(&several).unwrap() as usize, gone, "{several:?}");
            }
            _ => {
                let count = 1 + random.below(20);
                let begins = |member: &&Vec<u8>| member.starts_with(&bytes);
                let expected: Vec<_> = model.iter().filter(begins).take(count).cloned().collect();
                let found = group.matching_bytes(&bytes, count as u32).unwrap();
                assert_eq!(found, expected, "{bytes:?}");
            }
        }
    }
}

#[test]
fn names_that_are_not_utf8_are_refused_as_text_and_found_as_bytes() {
    let server = Server::any();
    let (recent, group) = (recent(&server), group(&server));
    for name in [&b"\xff"[..], b"bob"] {
        recent.add(name).unwrap();
    }
    group.add([&b"\xff"[..], b"bob"]).unwrap();
    for (what, found) in [("contact", recent.matching("", 10)), ("member", group.matching("", 10))] {
        let Err(CallError::Invalid(error)) = found else { panic!("{found:?}") };
        assert_eq!(error.what(), what);
        assert!(error.to_string().contains("number 2 "), "{error}");
        assert!(error.to_string().contains("`matching_bytes`"), "{error}");
    }
    assert_eq!(recent.matching_bytes("", 10).unwrap(), [&b"bob"[..], b"\xff"]);
    assert_eq!(group.matching_bytes("", 10).unwrap(), [&b"bob"[..], b"\xff"]);
    assert_eq!(group.matching("b", 10).unwrap(), ["bob"]);
}
