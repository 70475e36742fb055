//! Promise: `RELEASING.md` has one table with the version of every package and the number of the contract,
//! and every file that contains such a number agrees with it.

use std::collections::BTreeMap;
use std::path::Path;

fn text(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(file);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The table: what each row is about, and its number.
fn table() -> BTreeMap<String, String> {
    let releasing = text("RELEASING.md");
    let section = releasing.split("\n## Versions\n").nth(1).and_then(|text| text.split("\n## ").next());
    let rows =
        section.expect("RELEASING.md has the section").lines().filter_map(|line| line.strip_prefix("| `"));
    let rows = rows.map(|row| {
        let cells: Vec<_> = row.split('|').map(|cell| cell.trim().trim_matches('`').to_owned()).collect();
        (cells[0].clone(), cells[1].clone())
    });
    rows.collect()
}

/// What a file says directly after a text, up to the end of the number.
fn number_after(file: &str, before: &str) -> String {
    let text = text(file);
    let (_, after) = text.split_once(before).unwrap_or_else(|| panic!("{file}: {before:?} is missing"));
    after.chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect()
}

/// Each place with a number: the row of the table, the file, and the text before the number.
const PLACES: [(&str, &str, &str); 22] = [
    ("luagate", "Cargo.toml", "\nversion = \""),
    ("luagate", "cli/Cargo.toml", "luagate = { path = \"..\", version = \""),
    ("luagate-core", "crates/core/Cargo.toml", "\nversion = \""),
    ("luagate-core", "Cargo.toml", "luagate-core = { path = \"crates/core\", version = \"="),
    ("luagate-memory", "crates/memory/Cargo.toml", "\nversion = \""),
    ("luagate-memory", "Cargo.toml", "luagate-memory = { path = \"crates/memory\", version = \""),
    ("luagate-cli", "cli/Cargo.toml", "\nversion = \""),
    ("clients/python", "clients/python/pyproject.toml", "\nversion = \""),
    ("clients/javascript", "clients/javascript/package.json", "\n  \"version\": \""),
    ("clients/go", "RELEASING.md", "git push origin clients/go/v"),
    ("clients/java", "clients/java/pom.xml", "<artifactId>luagate</artifactId>\n  <version>"),
    ("clients/java", "clients/java/README.md", "<artifactId>luagate</artifactId>\n      <version>"),
    ("clients/java", "tests/languages/java/pom.xml", "<artifactId>luagate</artifactId>\n      <version>"),
    ("contract", "lua/manifest.json", "\"contract\": "),
    ("contract", "clients/python/luagate/lua/manifest.json", "\"contract\": "),
    ("contract", "clients/javascript/lib/lua.js", "\"contract\": "),
    ("contract", "clients/go/lua/manifest.json", "\"contract\": "),
    ("contract", "clients/java/src/main/resources/luagate/lua/manifest.json", "\"contract\": "),
    ("contract", "clients/python/luagate/scripts.py", "\nCONTRACT = "),
    ("contract", "clients/javascript/lib/scripts.js", "\nconst CONTRACT = "),
    ("contract", "clients/go/scripts/scripts.go", "\nconst contract = "),
    ("contract", "clients/java/src/main/java/luagate/Scripts.java", "int CONTRACT = "),
];

#[test]
fn every_file_has_the_number_of_the_table() {
    let table = table();
    let numbers = PLACES.iter().map(|(row, file, before)| (row, file, number_after(file, before)));
    let wrong = numbers.filter(|(row, _, number)| table.get(**row) != Some(number));
    let wrong: Vec<_> = wrong.map(|(row, file, number)| format!("{file}: {row} {number}")).collect();
    assert!(wrong.is_empty(), "the table in RELEASING.md has other numbers than\n{}", wrong.join("\n"));
    let unused: Vec<_> = table.keys().filter(|row| PLACES.iter().all(|(name, ..)| name != row)).collect();
    assert!(unused.is_empty(), "no file has the numbers of the rows {unused:?}");
}

/// One version for a user to remember. Only the server in memory may keep an older one, and the contract has
/// its own numbers.
#[test]
fn everything_but_the_memory_server_is_released_as_one_version() {
    let table = table();
    let alone = ["luagate-memory", "contract"];
    for (row, number) in table.iter().filter(|(row, _)| !alone.contains(&row.as_str())) {
        assert_eq!(number, &table["luagate"], "{row}");
    }
}

#[test]
fn the_changelog_describes_the_version_and_its_contract() {
    let table = table();
    let changelog = text("CHANGELOG.md");
    let heading = format!("\n## [{}] - ", table["luagate"]);
    let (_, section) =
        changelog.split_once(&heading).unwrap_or_else(|| panic!("CHANGELOG.md: no section {heading:?}"));
    let section = section.split("\n## ").next().unwrap_or(section);
    assert!(
        section.contains(&format!("Contract {}", table["contract"])),
        "the section does not name the contract"
    );
}
