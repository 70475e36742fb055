//! Finds the permission that the user of a connection lacks, in the form that `ACL SETUSER` accepts.

use super::failure::FailureKind;
use super::replies;
use redis::RedisError;

/// Adds the missing permission to the error of a refused script. Redis never names the key. Before 7.2 it does not name
/// the command inside a script either, but only the line.
pub(crate) fn name_in_script(error: RedisError, script: &str, keys: impl FnOnce() -> Vec<String>) -> RedisError {
    if replies::meaning(&error).is_none_or(|meaning| meaning.kind != FailureKind::Permission) {
        return error;
    }
    let text = error.detail().unwrap_or_default();
    let missing = match line_of(text).and_then(|line| script.lines().nth(line.checked_sub(1)?)) {
        Some(line) => {
            commands_in(line).map(|command| format!("+{}", command.to_lowercase())).collect::<Vec<_>>().join(" or ")
        }
        None if text.contains(" key") => patterns_of(&keys()),
        None => String::new(),
    };
    if missing.is_empty() {
        return error;
    }
    let named = format!("the permission {missing} is missing: {text}");
    redis::make_extension_error("NOPERM".to_owned(), Some(named))
}

/// Adds the missing channel pattern to a refusal: Redis does not name the channel.
pub(crate) fn name_channel(text: &str, channel: &str) -> String {
    if !text.contains(" channel") {
        return text.to_owned();
    }
    let pattern = channel.rsplit_once(':').map_or(channel, |(start, _)| start);
    format!("the permission &{pattern}:* is missing: {text}")
}

/// The line of the script at which the server stopped.
fn line_of(text: &str) -> Option<usize> {
    let (_, after) = text.split_once("@user_script:")?;
    let digits = after.split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok()
}

/// The commands that a line of Lua calls: the quoted words in the first argument of each call.
fn commands_in(line: &str) -> impl Iterator<Item = &str> {
    line.split("call(")
        .skip(1)
        .filter_map(|after| after.split([',', ')']).next())
        .flat_map(|argument| argument.split('\'').skip(1).step_by(2))
}

/// The patterns of luagate's keys, `~<prefix>:*`. Another key is its own pattern.
fn patterns_of(keys: &[String]) -> String {
    let mut patterns: Vec<String> = keys
        .iter()
        .map(|key| {
            let kind = key.split_once(":{").map(|(start, _)| start);
            match kind.and_then(|start| start.rsplit_once(':')) {
                Some((prefix, _)) => format!("~{prefix}:*"),
                None => format!("~{key}"),
            }
        })
        .collect();
    patterns.dedup();
    patterns.join(" ")
}
