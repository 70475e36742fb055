//! The fields of a reply. Each one must be in the parsed answer.

use crate::protocol::value::Value;

/// Fields of 32 bits.
pub(super) const SMALL: &str = "permits in_use limit left count old new current kept added removed";
/// Fields with yes or no.
pub(super) const FLAGS: [&str; 2] = ["pinned", "cooling_down"];

/// Fields in which -1 means never.
pub(super) const MAY_BE_NEVER: [&str; 2] = ["expires_at", "next_expiry"];

pub(super) fn plain(script: &str, reply: &Value) -> String {
    match reply {
        Value::Int(number) if script.ends_with("recent_remove") => (*number == 1).to_string(),
        Value::Int(number) => number.to_string(),
        Value::Array(texts) => {
            let texts = texts.iter().map(|text| text_of(text).as_bytes());
            format!("{:?}", texts.collect::<Vec<_>>())
        }
        other => panic!("{other:?}"),
    }
}

/// Checks that the displayed answer contains each of these fields with its value.
#[track_caller]
pub(super) fn assert_fields(fields: &[&str], reply: &Value, answer: &str) {
    let Value::Array(values) = reply else { panic!("{reply:?}") };
    assert_eq!(fields.len(), values.len(), "{reply:?}");
    for (field, value) in fields.iter().zip(values) {
        let shown = match value {
            Value::Array(rows) => {
                rows.iter().for_each(|row| assert_fields(fields_of(field), row, answer));
                continue;
            }
            Value::Int(-1) => "None".to_owned(),
            Value::Int(number) if MAY_BE_NEVER.contains(field) => format!("Some({number})"),
            Value::Int(number) if *field == "index" => (number - 1).to_string(), // from 0
            Value::Int(number) if FLAGS.contains(field) => (*number == 1).to_string(),
            Value::Int(number) => number.to_string(),
            _ if field.is_empty() => continue,
            text => format!("{:?}", text_of(text)),
        };
        let has = |end: &str| answer.contains(&format!(" {field}: {shown}{end}"));
        assert!(has(",") || has(" }"), "{field}: {shown} is not in {answer}");
    }
}

pub(super) fn text_of(value: &Value) -> &str {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).unwrap(),
        other => panic!("not a text: {other:?}"),
    }
}

/// The fields in each row of a list.
pub(super) fn fields_of(list: &str) -> &'static [&'static str] {
    match list {
        "holders" => &["id", "permits", "fence", "expires_at", "cooling_down"],
        "waiters" => &["id", "permits", "ticket", "patience_until"],
        "permits" => &["permits", "fence", "expires_at", "in_use", "limit"],
        "usages" => &["in_use", "limit", "waiting"],
        _ => &[],
    }
}
