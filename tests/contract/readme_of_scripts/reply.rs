//! Replies as the page shows them, and as redis-cli prints them.

/// A value of a reply.
#[derive(Clone, Debug)]
pub enum Value {
    Number(i64),
    Text(String),
    List(Vec<Value>),
}

/// A value that the page shows, and its column.
pub struct Shown {
    pub column: usize,
    pub kind: Kind,
}

pub enum Kind {
    Word(String),
    List(Vec<Shown>),
}

/// The values of a line: words separated by spaces, and lists in brackets.
pub fn shown(line: &str) -> Vec<Shown> {
    let mut at = 0;
    let values = values(line, &mut at);
    assert_eq!(at, line.len(), "unbalanced brackets: {line}");
    values
}

fn values(line: &str, at: &mut usize) -> Vec<Shown> {
    let mut values = Vec::new();
    while let Some(next) = line[*at..].chars().next() {
        let column = *at;
        let kind = match next {
            ']' => break,
            ' ' => {
                *at += 1;
                continue;
            }
            '[' => {
                *at += 1;
                let list = self::values(line, at);
                assert_eq!(line[*at..].chars().next(), Some(']'), "{line}");
                *at += 1;
                Kind::List(list)
            }
            _ => {
                let rest = &line[*at..];
                let word = rest.split([' ', '[', ']']).next().unwrap();
                *at += word.len();
                Kind::Word(word.to_owned())
            }
        };
        values.push(Shown { column, kind });
    }
    values
}

/// Parses the output of redis-cli with `--no-raw`: `1) (integer) 5`. Nested lists are indented.
pub fn printed(text: &str) -> Value {
    let lines: Vec<&str> = text.lines().collect();
    value(&lines)
}

fn value(lines: &[&str]) -> Value {
    let first = lines[0];
    let number = first.trim_start().split(')').next().unwrap();
    if !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) {
        let width = first.find(')').unwrap() + 2;
        return Value::List(items(lines, width));
    }
    assert_eq!(lines.len(), 1, "{lines:?}");
    if let Some(number) = first.strip_prefix("(integer) ") {
        Value::Number(number.parse().unwrap())
    } else if first.starts_with("(empty ") {
        Value::List(Vec::new())
    } else {
        let text = first.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
        Value::Text(text.unwrap_or_else(|| panic!("{first}")).to_owned())
    }
}

/// The items of a list. Each begins with its number, `width` columns wide.
fn items(lines: &[&str], width: usize) -> Vec<Value> {
    let mut items: Vec<Vec<&str>> = Vec::new();
    for line in lines {
        let (number, rest) = line.split_at(width);
        match items.last_mut() {
            Some(item) if number.trim().is_empty() => item.push(rest),
            _ => items.push(vec![rest]),
        }
    }
    items.iter().map(|lines| value(lines)).collect()
}
