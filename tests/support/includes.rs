//! What `./dev manifest` does to the sources of the scripts, in `lua/`.

/// The text of a script: each line `-- include: FILE` of its source stands for the text that `part` returns for this name.
pub fn expand(source: &str, mut part: impl FnMut(&str) -> String) -> String {
    let mut text = String::new();
    for line in source.split_inclusive('\n') {
        match line.trim().strip_prefix("-- include: ") {
            Some(file) => text += &part(file),
            None => text += line,
        }
    }
    text
}
