//! The scripts that are built from the sources in `lua/`, for `./dev manifest` and for tests.

/// The file that a line `-- include: FILE` names.
fn included(line: &str) -> Option<&str> {
    line.trim().strip_prefix("-- include: ")
}

/// The text of a script with all comments. Each line `-- include: FILE` is replaced by the text that `part`
/// returns for this name. A part can include other parts.
pub fn expand(source: &str, mut part: impl FnMut(&str) -> String) -> String {
    expand_with(source, &mut part)
}

fn expand_with(source: &str, part: &mut dyn FnMut(&str) -> String) -> String {
    let mut text = String::new();
    for line in source.split_inclusive('\n') {
        match included(line) {
            Some(file) => text += &expand_with(&part(file), part),
            None => text += line,
        }
    }
    text
}

/// The text of a script in the form that the server receives. Of the lines that are only a comment it has the
/// head of the source, since the server stores the whole text.
///
/// # Errors
/// A text of several lines may contain a line that begins with `--` and is no comment. So long brackets, and
/// strings that continue on the next line, are refused.
pub fn whole(source: &str, part: impl FnMut(&str) -> String) -> Result<String, String> {
    let is_head = |line: &&str| line.starts_with("--") && included(line).is_none();
    let head: String = source.split_inclusive('\n').take_while(is_head).collect();
    let rest = expand(&source[head.len()..], part);
    let goes_on = |line: &&str| line.contains("[[") || line.contains("[=") || line.ends_with('\\');
    if let Some(line) = head.lines().chain(rest.lines()).find(goes_on) {
        return Err(format!(
            "a string or comment of several lines: {line}. Accepted: '...' and \"...\" on one line, and --"
        ));
    }
    let code = rest.split_inclusive('\n').filter(|line| !line.trim_start().starts_with("--"));
    Ok(head + &code.collect::<String>())
}
