//! The fields of a reply, each of which is in the answer.

use redis::Value;

/// The fields of 32 bits.
pub(super) const SMALL: &str = "permits in_use limit left count old new current kept added removed";
/// Those that are yes or no.
pub(super) const FLAGS: [&str; 2] = ["pinned", "cooling_down"];

/// Those for which -1 stands for never.
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

/// An answer, as it is displayed, has each of these fields with its value.
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
        other => panic!("no text: {other:?}"),
    }
}

/// What each row of a list has.
pub(super) fn fields_of(list: &str) -> &'static [&'static str] {
    match list {
        "holders" => &["id", "permits", "fence", "expires_at", "cooling_down"],
        "waiters" => &["id", "permits", "ticket", "patience_until"],
        "permits" => &["permits", "fence", "expires_at", "in_use", "limit"],
        "usages" => &["in_use", "limit", "waiting"],
        _ => &[],
    }
}
