//! Promise to async programs: each method that blocks has an async form, and the `clippy.toml` of the guide
//! forbids it.

use std::collections::BTreeSet;
use std::path::Path;

const API: &str = include_str!("../release/public-api.txt");
const GUIDE: &str = include_str!("../../src/guide/async_programs.md");

/// Functions for tools, which block and have no async form.
const TOOLS: [&str; 5] = [
    "luagate::admin::inspect_page",
    "luagate::admin::masters",
    "luagate::admin::names",
    "luagate::admin::Master::command",
    "luagate::admin::Names::next_step",
];

/// The paths of all functions of the API that begin with this.
fn functions(start: &str) -> BTreeSet<&'static str> {
    let paths = API.lines().filter_map(|line| line.strip_prefix(start));
    paths.map(|path| path.split(['(', '<']).next().unwrap()).collect()
}

/// The methods that have an async form. `run_async` and `lost_async` are no such form: nothing blocks in
/// their place.
fn blocking() -> BTreeSet<&'static str> {
    let all = functions("pub fn ");
    let found = functions("pub async fn ");
    let found = found.iter().filter_map(|path| path.strip_suffix("_async")).filter(|path| all.contains(path));
    let found: BTreeSet<_> = found.collect();
    assert!(found.len() > 40, "{found:?}");
    found
}

#[test]
fn the_clippy_settings_of_the_guide_forbid_every_method_that_blocks() {
    let (_, settings) = GUIDE.split_once("disallowed-methods = [").expect("the settings are in the guide");
    let (settings, _) = settings.split_once(']').unwrap();
    let forbidden = settings.split(',').map(|path| path.trim().trim_matches('"'));
    let forbidden: BTreeSet<_> = forbidden.filter(|path| !path.is_empty()).collect();
    let expected: BTreeSet<_> = blocking().into_iter().chain(TOOLS).collect();
    assert_eq!(forbidden, expected);
    let all = functions("pub fn ");
    assert!(expected.iter().all(|path| all.contains(path)), "{:?}", expected.difference(&all));
}

#[test]
fn each_method_that_blocks_has_an_async_form() {
    let names: BTreeSet<_> =
        blocking().into_iter().chain(TOOLS).filter_map(|path| path.rsplit("::").next()).collect();
    let mut count = 0;
    for (file, text) in crate::sources::sources("src") {
        if file.starts_with("scripts") || file == Path::new("memory.rs") {
            continue; // on the caller's own connection; for tests
        }
        for (doc, rest) in text.match_indices("pub fn ").map(|(at, _)| text.split_at(at)) {
            let lines = doc.lines().rev().skip(1).map(str::trim_start);
            let blocks =
                lines.take_while(|line| line.starts_with("///") || line.starts_with("#[")).any(|line| {
                    line.contains("Blocks for")
                        || line.contains("Blocks until")
                        || line.contains("Blocks meanwhile")
                });
            let name = rest["pub fn ".len()..].split(['(', '<']).next().unwrap();
            assert!(!blocks || names.contains(name), "{file:?}: {name} has no async form");
            count += usize::from(blocks);
        }
    }
    assert!(count > 30, "{count}");
}
