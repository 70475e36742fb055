//! Promise: every name, id, label, prefix, contact and member either works and is returned unchanged, or is
//! refused with an error that says what is accepted. No two names share a key.

use crate::fuzz;
use crate::support::Server;

use luagate::errors::{AcquireError, CallError, PermitError, TryAcquireError};
use luagate::scripts::autocomplete::{self, prefix_key, recent_key};
use luagate::scripts::{Keys, LatchKeys};
use luagate::{Gate, Lease, Revoked, name_from};
use proptest::prelude::*;
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::time::Duration;

/// The rule for a name or id, written independently of the library.
fn is_word(text: &str) -> bool {
    let plain = text.chars().all(|c| !c.is_whitespace() && !c.is_control());
    plain && (1..=200).contains(&text.len())
}

fn is_name(text: &str) -> bool {
    let is_plain = |text: &str| is_word(text) && !text.contains(['{', '}']);
    match text.strip_prefix('{').and_then(|rest| rest.split_once("}:")) {
        Some((group, rest)) => is_word(text) && is_plain(group) && is_plain(rest),
        None => is_plain(text),
    }
}

fn is_prefix(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-:".contains(&byte);
    text.bytes().all(allowed) && (1..=64).contains(&text.len())
}

/// Every key for this prefix and name, or `None` if one of them is invalid.
fn all_keys(prefix: &str, name: &str) -> Option<Vec<String>> {
    let kinds = [Keys::semaphore, Keys::mutex, Keys::rwlock];
    let mut keys = Vec::new();
    for kind in kinds {
        keys.extend(kind(prefix, name).ok()?.list().map(str::to_owned));
    }
    keys.extend(LatchKeys::new(prefix, name).ok()?.list().map(str::to_owned));
    keys.push(recent_key(prefix, name).ok()?);
    keys.push(prefix_key(prefix, name).ok()?);
    Some(keys)
}

/// Prefixes that resemble a part of another prefix's keys.
fn prefix() -> BoxedStrategy<String> {
    prop_oneof![
        3 => "(a|b|:|luagate|semaphore|mutex|holders|queue|recent|prefix|latch|waiters|\\.|-){1,4}",
        1 => fuzz::text(),
    ]
    .boxed()
}

fn name() -> BoxedStrategy<String> {
    prop_oneof![3 => fuzz::text(), 1 => "\\{?[ab:]{1,3}(\\}:)?[ab:{}]{0,3}"].boxed()
}

#[test]
fn no_two_names_share_a_key() {
    let mut owners: HashMap<String, (String, String)> = HashMap::new();
    let taken = Cell::new(0);
    let owners = RefCell::new(&mut owners);
    proptest!(fuzz::cases(5_000), |(prefix in prefix(), name in name())| {
        let keys = all_keys(&prefix, &name);
        prop_assert_eq!(keys.is_some(), is_prefix(&prefix) && is_name(&name));
        for key in keys.into_iter().flatten() {
            let owner = (prefix.clone(), name.clone());
            // A key of another name, or the same key twice for this name.
            if let Some(other) = owners.borrow_mut().insert(key.clone(), owner.clone()) {
                prop_assert_eq!(&other, &owner, "{}", key);
            }
            // In a cluster all keys share a slot: the first braces belong to the hash tag, and it is not
            // empty.
            let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}'));
            prop_assert!(tag.is_some_and(|(tag, _)| !tag.is_empty()), "{}", key);
            taken.set(taken.get() + 1);
        }
    });
    assert!(taken.get() > 1_000, "{}", taken.get());
}

/// Texts of any length, most of them invalid as names.
fn any_text() -> BoxedStrategy<String> {
    prop_oneof![
        2 => fuzz::text(),
        2 => "https?://[a-z]{1,5}/[a-z /?&=]{0,300}",
        1 => "\\{[a-z]{0,120}\\}:[a-z {}]{0,120}",
        1 => "[a-z]{190,210}",
        1 => "\\PC{0,250}",
    ]
    .boxed()
}

#[test]
fn every_text_gets_a_different_valid_name() {
    let owners: RefCell<HashMap<String, String>> = RefCell::default();
    let (kept, changed) = (Cell::new(0), Cell::new(0));
    proptest!(fuzz::cases(5_000), |(text in any_text())| {
        let name = name_from(&text);
        prop_assert!(is_name(&name), "{:?} of {:?}", name, text);
        prop_assert!(Keys::semaphore("luagate", &name).is_ok(), "{:?}", name);
        prop_assert_eq!(name == text, is_name(&text), "{:?} of {:?}", name, text);
        prop_assert_eq!(&name_from(&text), &name);
        prop_assert_eq!(&name_from(&name), &name);
        let count = if name == text { &kept } else { &changed };
        count.set(count.get() + 1);
        if let Some(other) = owners.borrow_mut().insert(name, text.clone()) {
            prop_assert_eq!(other, text);
        }
    });
    assert!(kept.get() > 100 && changed.get() > 100, "{kept:?} {changed:?}");
}

#[test]
fn texts_that_differ_only_in_characters_forbidden_in_names_get_different_names() {
    let long = "x".repeat(300);
    let texts = [
        "",
        " ",
        "\t",
        "a b",
        "a\tb",
        "a{b",
        "a}b",
        "{}",
        "()",
        "{}:a",
        "{a}:",
        "{a}:b c",
        "{a}:b\tc",
        "(a):b_c",
        &long,
        &long[1..],
        &format!("{long} "),
        &"é".repeat(101),
        &"é".repeat(102),
    ];
    let names: HashSet<String> = texts.iter().map(|text| name_from(text)).collect();
    assert_eq!(names.len(), texts.len(), "{names:?}");
    assert!(names.iter().all(|name| is_name(name)), "{names:?}");
    assert_eq!(name_from(&long).len(), 200);
}

/// `lua/names.json` tells clients in other languages.
#[test]
fn a_text_has_the_same_name_in_all_languages() {
    let file: serde_json::Value = serde_json::from_str(include_str!("../../lua/names.json")).unwrap();
    let rows = file.as_array().unwrap();
    assert!(rows.len() >= 20);
    for row in rows {
        assert_eq!(name_from(row["text"].as_str().unwrap()), row["name"].as_str().unwrap(), "{row}");
    }
}

#[test]
fn a_group_in_the_text_is_kept_in_the_name_so_that_keys_share_a_slot() {
    let name = name_from("{shop}:a path/to an item");
    assert!(name.starts_with("{shop}:a_path/to_an_item~"), "{name}");
    let keys = Keys::mutex("luagate", &name).unwrap();
    assert_eq!(keys.tag(), "shop");
}

/// The text of the error about a refused argument.
trait Refused {
    fn says(&self) -> Option<String>;
}

macro_rules! refused {
    ($($error:ident)*) => {
        $(impl Refused for $error {
            fn says(&self) -> Option<String> {
                match self {
                    $error::Invalid(invalid) => Some(invalid.to_string()),
                    _ => None,
                }
            }
        })*
    };
}

refused!(CallError TryAcquireError AcquireError PermitError);

/// Asserts that an argument is refused exactly if it is invalid, and that the error then says what is
/// accepted.
fn check<T, E: Refused + std::fmt::Debug>(
    outcome: Result<T, E>,
    takes: bool,
) -> Result<Option<T>, TestCaseError> {
    match outcome {
        Ok(value) => {
            prop_assert!(takes, "was accepted");
            Ok(Some(value))
        }
        Err(error) => {
            let says = error.says();
            prop_assert!(!takes && says.is_some(), "{:?}", error);
            let says = says.unwrap_or_default();
            prop_assert!(says.contains("Accepted: "), "{}", says);
            Ok(None)
        }
    }
}

#[test]
fn a_name_works_or_is_refused() {
    let server = Server::any();
    let gate = server.gate();
    proptest!(fuzz::cases(300), |(name in name(), id in fuzz::text())| {
        let semaphore = gate.semaphore(&name, 2).id(&id).lease(Lease::fixed(Duration::from_secs(600)));
        let takes = is_name(&name) && is_word(&id);
        let permit = check(semaphore.try_acquire(), takes)?;
        if let Some(permit) = permit {
            let state = semaphore.inspect().unwrap();
            let ids: Vec<_> = state.holders.iter().map(|holder| holder.id.as_str()).collect();
            prop_assert_eq!(ids, [id.as_str()]);
            prop_assert_eq!(semaphore.revoke(&id).unwrap(), Revoked::Held);
            drop(permit);
        }
        // Another client may have chosen an id that this library does not give.
        match semaphore.revoke(&id) {
            Ok(revoked) => prop_assert!(is_name(&name) && revoked == Revoked::Nothing),
            Err(error) => prop_assert!(!takes && error.to_string().contains("Accepted: "), "{}", error),
        }
        check(semaphore.available_permits(), is_name(&name))?;
        check(semaphore.acquire_timeout(Duration::from_secs(60)).map(drop), takes)?;
        check(gate.latch(&name, 2).count_down_as(&id), takes)?;
        check(gate.mutex(&name).try_lock().map(drop), is_name(&name))?;
        let adopted = semaphore.adopt(&id);
        match adopted {
            Err(PermitError::Lost(_)) => prop_assert!(takes),
            other => drop(check(other, false)?),
        }
        for key in server.all_keys() {
            let _: () = redis::cmd("DEL").arg(key).query(&mut server.connection()).unwrap();
        }
    });
}

#[test]
fn a_label_or_prefix_works_or_is_refused() {
    let server = Server::any();
    proptest!(fuzz::cases(200), |(label in fuzz::text(), prefix in prefix())| {
        let takes = is_word(&label) && label.len() <= 163;
        let semaphore = server.gate().semaphore("labelled", 2).label(&label);
        if let Some(permit) = check(semaphore.try_acquire(), takes)? {
            let state = semaphore.inspect().unwrap();
            prop_assert_eq!(state.holders[0].label(), Some(label.as_str()));
            permit.release().unwrap();
        }
        check(Gate::builder(&server.url).prefix(&prefix).open(), is_prefix(&prefix))?;
        check(Gate::builder(&server.url).label(&label).open(), takes)?;
    });
}

#[test]
fn no_address_or_url_causes_a_panic() {
    proptest!(fuzz::cases(300), |(text in fuzz::text(), scheme in "(redis|rediss|unix|redis\\+unix|valkey|http)?(://)?")| {
        // If the text happens to be an address, no server listens there.
        let url = format!("{scheme}\0{text}");
        prop_assert!(Gate::open(&url).is_err());
    });
}

/// Few different bytes, so that some texts are prefixes of others.
fn bytes() -> BoxedStrategy<Vec<u8>> {
    let few = proptest::sample::select(vec![0_u8, b'a', b'A', b'[', b'(', b'+', 0x7f, 0xc3, 0xfe, 0xff]);
    prop_oneof![
        8 => proptest::collection::vec(few, 0..5),
        1 => proptest::collection::vec(any::<u8>(), 0..20),
        1 => Just(vec![b'x'; 70_000]),
    ]
    .boxed()
}

#[test]
fn contacts_and_members_can_be_any_bytes() {
    let server = Server::any();
    let con = RefCell::new(server.connection());
    let count = Cell::new(0);
    let some = proptest::collection::vec(bytes(), 0..12);
    proptest!(fuzz::cases(300), |(all in some, begin in bytes(), most in 1..20_u32)| {
        let con = &mut *con.borrow_mut();
        count.set(count.get() + 1);
        let group = prefix_key(&server.prefix, &count.get().to_string()).unwrap();
        let user = recent_key(&server.prefix, &count.get().to_string()).unwrap();
        let mut members = all.clone();
        members.sort();
        members.dedup();
        let mut contacts: Vec<Vec<u8>> = Vec::new();
        for contact in &all {
            autocomplete::recent_add(con, &user, contact, 1_000).unwrap();
            contacts.retain(|other| other != contact);
            contacts.insert(0, contact.clone());
        }
        let added = autocomplete::prefix_add(con, &group, &all).unwrap();
        prop_assert_eq!(usize::try_from(added).unwrap(), members.len());
        members.retain(|member| member.starts_with(&begin));
        members.truncate(most.try_into().unwrap());
        let lower = begin.to_ascii_lowercase();
        contacts.retain(|contact| contact.to_ascii_lowercase().starts_with(&lower));
        contacts.truncate(most.try_into().unwrap());
        prop_assert_eq!(autocomplete::prefix_match(con, &group, &begin, most).unwrap(), members);
        prop_assert_eq!(autocomplete::recent_match(con, &user, &begin, most).unwrap(), contacts);
        for each in &all {
            autocomplete::recent_remove(con, &user, each).unwrap();
        }
        autocomplete::prefix_remove(con, &group, &all).unwrap();
        prop_assert!(autocomplete::prefix_match(con, &group, "", 9).unwrap().is_empty());
        prop_assert!(autocomplete::recent_match(con, &user, "", 9).unwrap().is_empty());
    });
}

#[test]
fn all_keys_of_a_name_share_one_hash_tag() {
    let keys = Keys::semaphore("luagate", "market:17").unwrap();
    assert_eq!(
        keys.list(),
        [
            "luagate:semaphore:{market:17}",
            "luagate:semaphore.holders:{market:17}",
            "luagate:semaphore.queue:{market:17}",
        ]
    );
    let grouped = Keys::mutex("app", "{items}:17").unwrap();
    assert_eq!(grouped.list()[0], "app:mutex:{items}:17");
    assert_eq!(recent_key("app", "ann").unwrap(), "app:recent:{ann}");
    assert_eq!(prefix_key("app", "{g}:n").unwrap(), "app:prefix:{g}:n");
    let latch = LatchKeys::new("app", "{items}:17").unwrap();
    let names = ["app:latch:{items}:17", "app:latch.waiters:{items}:17"];
    assert_eq!(latch.list(), names);
}

#[test]
fn invalid_names_and_prefixes_are_refused() {
    let long = "x".repeat(201);
    for name in ["", "a b", "a\u{0}", "a{b", "}", "{}", "{}:a", "{a}:", "{a}", "{a}:{b}", "a\u{3000}b", &long]
    {
        assert!(Keys::semaphore("luagate", name).is_err(), "{name:?}");
        assert!(recent_key("luagate", name).is_err(), "{name:?}");
        assert!(prefix_key("luagate", name).is_err(), "{name:?}");
    }
    for prefix in ["", "a b", "{a}", "é", &long[..65]] {
        assert!(Keys::semaphore(prefix, "name").is_err(), "{prefix:?}");
    }
}
