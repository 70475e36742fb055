//! The page that shows the smallest use in each language.

use super::language::ROOT;
use libtest_mimic::Failed;

/// What it shows, as it is.
const SHOWN: [&str; 4] =
    ["python/example.py", "javascript/example.mjs", "go/example/main.go", "java/src/main/java/Example.java"];

/// What is shown there is what is run here.
pub fn shows_the_examples() -> Result<(), Failed> {
    let folder = format!("{ROOT}/tests/languages");
    let page = std::fs::read_to_string(format!("{folder}/README.md"))?;
    for file in SHOWN {
        let text = std::fs::read_to_string(format!("{folder}/{file}"))?;
        if !page.contains(&format!("\n{text}```\n")) {
            return Err(format!("the page does not show {file} as it is").into());
        }
    }
    Ok(())
}
