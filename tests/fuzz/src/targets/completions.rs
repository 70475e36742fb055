//! The words that a shell completes, and the names on the server that complete them. Promise: each offer is
//! on one line, and no name that a shell would carry out is offered.

use super::{text, texts};
use crate::completions::lines;
use std::collections::BTreeSet;
use std::ffi::OsString;

/// The first byte: the index of the word. Then the words and the names, each on a line; a name begins with
/// `=`.
pub fn run(data: &[u8]) {
    let Some((index, rest)) = data.split_first() else { return };
    let rest = text(rest);
    let (names, words): (Vec<&str>, Vec<&str>) = rest.split('\n').partition(|line| line.starts_with('='));
    let names: BTreeSet<String> = names.into_iter().map(|name| name[1..].to_owned()).collect();
    let words: Vec<OsString> = ["luagate"].iter().chain(&words).map(OsString::from).collect();
    let asked = names.clone();
    let begun = move |begin: &str| asked.iter().filter(|name| name.starts_with(begin)).cloned().collect();
    let Ok(offered) = lines(usize::from(*index), words, begun) else { return };
    for line in offered.lines() {
        let (word, meaning) = line.split_once('\t').unwrap_or((line, ""));
        assert!(!meaning.contains(char::is_control), "{line:?}");
        let is_odd = |letter: char| letter.is_control() || "$`;|&<>(){}'\"\\*?!~ ".contains(letter);
        assert!(!names.contains(word) || !word.contains(is_odd), "{word:?} is offered");
    }
}

pub fn seeds() -> Vec<Vec<u8>> {
    let all = [
        "inspect\n\n=market:17\n=$(reboot)",
        "run\n-n\n5\nma\n=market:17\n=a b",
        "--url\nredis://x/\nls\n--s",
        "latch\na\nw",
        "r",
        "ls\n--sort\n",
        "run\n-n5\tb",
    ];
    (1..=3_u8)
        .flat_map(|index| texts(&all).into_iter().map(move |words| [vec![index], words].concat()))
        .collect()
}
