//! The text of the library. Promise to readers of the code: only `clock` reads the time.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

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

/// A text without its unit tests.
fn without_tests(text: &str) -> &str {
    text.split("mod tests {").next().unwrap()
}

#[test]
fn only_the_clock_reads_the_time() {
    for (path, text) in sources("src") {
        let code = without_tests(&text);
        let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
        let code: String = lines.collect();
        let reads = ["Instant::now(", "SystemTime::now(", ".elapsed("];
        let reads = reads.iter().any(|word| code.contains(word));
        assert!(
            !reads || path.starts_with("clock") || path == Path::new("clock.rs"),
            "{path:?} reads the time"
        );
    }
}
