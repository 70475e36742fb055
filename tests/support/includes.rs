//! What `./dev manifest` does to the sources of the scripts, in `lua/`.

/// The text of a script: each line `-- include: FILE` of its source stands for the text that `part` returns for this name.
/// A part may include parts itself.
pub fn expand(source: &str, mut part: impl FnMut(&str) -> String) -> String {
    expand_with(source, &mut part)
}

fn expand_with(source: &str, part: &mut dyn FnMut(&str) -> String) -> String {
    let mut text = String::new();
    for line in source.split_inclusive('\n') {
        match line.trim().strip_prefix("-- include: ") {
            Some(file) => text += &expand_with(&part(file), part),
            None => text += line,
        }
    }
    text
}
