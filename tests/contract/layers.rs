//! Promise to readers of the code: modules of `src/` depend only on modules below them, and every file fits on a few
//! screens.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// From bottom to top. A module uses no other module of its row and none above.
const LAYERS: [&[&str]; 16] = [
    &["error", "sync"],
    &["protocol"],
    &["clock"],
    &["foreign"],
    &["trace"],
    &["engine"],
    &["lease"],
    &["wait"],
    &["shared"],
    &["permit"],
    &["semaphore", "latch"],
    &["mutex", "rwlock"],
    &["several"],
    &["gate"],
    &["admin", "autocomplete", "scripts"],
    &["memory", "guide", "lib"],
];

const MOST_FILES_AT_THE_TOP: usize = 24;
const MOST_LINES: usize = 800;
const MOST_LINES_OF_A_FUNCTION: usize = 60;

/// The text of each file of a folder, by its path there, without unit tests and build output.
pub fn sources(folder: &str) -> BTreeMap<PathBuf, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let (mut folders, mut files) = (vec![root.clone()], BTreeMap::new());
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                let is_built = path.ends_with("target");
                folders.extend((!is_built).then_some(path));
            } else if path.extension().is_some_and(|extension| extension == "rs")
                && path.file_name().is_some_and(|name| name != "tests.rs")
            {
                let text = std::fs::read_to_string(&path).unwrap();
                files.insert(path.strip_prefix(&root).unwrap().to_owned(), text);
            }
        }
    }
    assert!(!files.is_empty(), "no files in {root:?}");
    files
}

/// The top-level module of `src/` to which a file belongs.
fn module_of(path: &Path) -> &str {
    let first = path.iter().next().unwrap().to_str().unwrap();
    first.trim_end_matches(".rs")
}

/// A text without its unit tests.
fn without_tests(text: &str) -> &str {
    text.split("mod tests {").next().unwrap()
}

/// The top-level modules that the code uses, without comments and unit tests.
fn used(text: &str) -> Vec<String> {
    let code = without_tests(text);
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    let code: String = lines.collect::<Vec<_>>().join("\n");
    let names = code.split("crate::").skip(1).map(|rest| {
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_');
        rest[..end.unwrap_or(rest.len())].to_owned()
    });
    names.filter(|name| name.starts_with(char::is_lowercase)).collect()
}

#[test]
fn modules_use_only_modules_below_them() {
    let height = |module: &str| {
        let found = LAYERS.iter().position(|layer| layer.contains(&module));
        found.unwrap_or_else(|| panic!("{module} is in no layer of this test"))
    };
    let mut wrong = Vec::new();
    for (path, text) in sources("src") {
        let module = module_of(&path).to_owned();
        for other in used(&text) {
            if other != module && other != "errors" && height(&other) >= height(&module) {
                wrong.push(format!("{} uses {other}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_protocol_has_no_socket_thread_or_clock() {
    let forbidden = [
        "std::net",
        "std::thread",
        "Instant::now",
        "SystemTime::now",
        "Mutex",
        "Condvar",
        "redis::Connection",
        "ConnectionLike",
        "redis::Client",
    ];
    for (path, text) in sources("src/protocol") {
        let code = without_tests(&text);
        let found = forbidden.iter().find(|word| code.contains(**word));
        assert!(found.is_none(), "{path:?} has {found:?}");
    }
}

#[test]
fn only_the_clock_reads_the_time() {
    for (path, text) in sources("src") {
        let code = without_tests(&text);
        let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
        let code: String = lines.collect();
        let reads = ["Instant::now(", "SystemTime::now(", ".elapsed("];
        let reads = reads.iter().any(|word| code.contains(word));
        assert!(!reads || module_of(&path) == "clock", "{path:?} reads the time");
    }
}

#[test]
fn files_and_functions_are_short_and_few_are_at_the_top() {
    for folder in ["src", "cli", "crates", "tests", "benches", "examples"] {
        let files = sources(folder);
        let top = files.keys().filter(|path| path.iter().count() == 1);
        assert!(top.count() <= MOST_FILES_AT_THE_TOP, "{folder}");
        for (path, text) in files {
            let lines = text.lines().count();
            assert!(lines <= MOST_LINES, "{path:?} has {lines} lines");
            for (name, lines) in functions(&text) {
                assert!(lines <= MOST_LINES_OF_A_FUNCTION, "{name} in {path:?} has {lines} lines");
            }
        }
    }
}

/// The functions of a text, each with its number of lines.
fn functions(text: &str) -> Vec<(String, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (first, line) in lines.iter().enumerate() {
        let Some((before, name)) = line.split_once("fn ") else {
            continue;
        };
        let indent = line.len() - line.trim_start().len();
        let is_function = before.trim().is_empty() || before.trim_start().starts_with("pub");
        let mut head = lines[first..].iter();
        let head = head.find(|line| line.ends_with(['{', ';', '}']));
        if !is_function || !head.is_some_and(|line| line.ends_with('{')) {
            continue; // a declaration, or a function on one line
        }
        let end = format!("{}}}", " ".repeat(indent));
        let length = lines[first..].iter().position(|line| *line == end);
        found.push((name.to_owned(), length.map_or(1, |length| length + 1)));
    }
    found
}
