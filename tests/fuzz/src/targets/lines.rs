//! What `luagate run` sends to its guard, and `luagate acquire` to its keeper. Promise: a line that cannot be
//! read is skipped, the next one is read, and each is the same after it was written and read again, however
//! the bytes are cut.

use super::texts;
use crate::acquire::keeper::Kept;
use crate::run::guard::lines::{Line, Lines};

/// The first byte: the length of the pieces in which the others arrive.
pub fn run(data: &[u8]) {
    let Some((piece, bytes)) = data.split_first() else { return };
    let whole = read(bytes, bytes.len());
    assert!(whole == read(bytes, usize::from(*piece)), "cut into pieces of {piece} bytes");
    for line in whole {
        let written = line.written().expect("JSON");
        assert!(read(written.as_bytes(), written.len()) == [line], "{written}");
    }
    let followed = [bytes, b"\n{\"Held\":[]}\n"].concat();
    assert!(read(&followed, followed.len()).last() == Some(&Line::Held(Vec::new())));
    if let Ok(kept) = serde_json::from_slice::<Kept>(bytes) {
        let written = serde_json::to_vec(&kept).expect("JSON");
        assert!(serde_json::from_slice::<Kept>(&written).is_ok_and(|again| again == kept));
    }
}

fn read(bytes: &[u8], piece: usize) -> Vec<Line> {
    let mut lines = Lines::default();
    let pieces = bytes.chunks(piece.max(1));
    pieces
        .flat_map(|piece| {
            lines.push(piece);
            std::iter::from_fn(|| lines.next()).collect::<Vec<_>>()
        })
        .collect()
}

pub fn seeds() -> Vec<Vec<u8>> {
    let server = r#"{"url":"redis://:hunter2@host/","prefix":"luagate","ca":null,"cert":null,"key":null}"#;
    let held = r#"{"name":"a","kind":"mutex","id":"web/1"}"#;
    let all = [
        format!("{{\"Server\":{server}}}\n{{\"Held\":[{held}]}}\n"),
        "{\"Started\":{\"leader\":7,\"has_group\":true,\"mark\":\"m\",\"limit\":9,\"owner\":1,\"others\":[3,4]}}\n"
            .to_owned(),
        "{\"Ends\":{\"at\":{\"secs\":7,\"nanos\":5},\"grace\":{\"secs\":1,\"nanos\":0}}}\nno line\n".to_owned(),
        format!(
            "{{\"server\":{server},\"name\":\"a\",\"kind\":\"mutex\",\"id\":\"web/1\",\"lease\":{{\"secs\":30,\"nanos\":0}},\"process\":{{\"id\":7,\"start\":\"99\"}},\"at_most\":null}}"
        ),
    ];
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    texts(&all).into_iter().map(|line| [vec![5], line].concat()).collect()
}
