//! The expansion of script sources in `lua/`, for `./dev manifest` and for tests.

/// The text of a script. Each line `-- include: FILE` is replaced by the text that `part` returns for this name. A part
/// can include other parts.
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
