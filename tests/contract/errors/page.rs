//! The tables of the guide page, and the names of variants in the public API.

use std::collections::BTreeSet;

pub(super) struct Row {
    pub(super) text: String,
    /// The fixed parts between the placeholders.
    parts: Vec<String>,
}

impl Row {
    fn new(text: &str) -> Row {
        let mut parts = text.split('<').map(|part| part.split_once('>').map_or(part, |(_, rest)| rest));
        Row { text: text.to_owned(), parts: parts.by_ref().map(str::to_owned).collect() }
    }

    /// Whether the text is that of this row, with one character or more for each placeholder.
    fn fits(&self, text: &str) -> bool {
        let [first, between @ .., last] = self.parts.as_slice() else {
            return text == self.text;
        };
        let Some(mut rest) =
            text.strip_prefix(first.as_str()).and_then(|rest| rest.strip_suffix(last.as_str()))
        else {
            return false;
        };
        for part in between {
            let Some(at) =
                rest.char_indices().nth(1).and_then(|(one, _)| Some(rest[one..].find(part.as_str())? + one))
            else {
                return false;
            };
            rest = &rest[at + part.len()..];
        }
        !rest.is_empty()
    }
}

pub(super) struct Page {
    errors: Vec<Row>,
    details: Vec<Row>,
}

/// The words before another error.
const BEFORE_AN_ERROR: [&str; 2] =
    ["unknown whether the server ran the call: ", "the release is not confirmed: "];

impl Page {
    pub(super) fn read(page: &str) -> Page {
        let (mut errors, mut details) = (Vec::new(), Vec::new());
        let mut title = "";
        for line in page.lines() {
            title = line.strip_prefix("# ").unwrap_or(title);
            let cell = line.strip_prefix("| ").and_then(|cells| cells.split(" | ").next());
            let Some(text) = cell.filter(|cell| cell.starts_with('`') && !title.is_empty()) else {
                continue;
            };
            let text = text
                .strip_prefix("`` ")
                .and_then(|text| text.strip_suffix(" ``"))
                .unwrap_or(text.trim_matches('`'));
            match title {
                "Details" => details.push(Row::new(text)),
                _ => errors.push(Row::new(text)),
            }
        }
        assert!(errors.len() > 100 && details.len() > 10, "{} and {} rows", errors.len(), details.len());
        let page = Page { errors, details };
        let texts: BTreeSet<&str> = page.rows().map(|row| row.text.as_str()).collect();
        // One text is an error and a detail, too.
        assert!(texts.len() + 1 >= page.rows().count(), "a row is there twice");
        page
    }

    pub(super) fn rows(&self) -> impl Iterator<Item = &Row> {
        self.errors.iter().chain(&self.details)
    }

    /// The one row of this text, and the rows of the error and the detail in it, go to `seen`.
    pub(super) fn find(&self, text: &str, seen: &mut BTreeSet<String>) -> Result<(), String> {
        let rows: Vec<&Row> = self.errors.iter().filter(|row| row.fits(text)).collect();
        let [row] = rows.as_slice() else {
            let rows: Vec<&str> = rows.iter().map(|row| row.text.as_str()).collect();
            return Err(format!("in {} rows: {text}\n{}", rows.len(), rows.join("\n")));
        };
        seen.insert(row.text.clone());
        if let Some(inner) = BEFORE_AN_ERROR.iter().find_map(|words| text.strip_prefix(words)) {
            let after = row.parts.last().map_or("", String::as_str);
            return self.find(inner.strip_suffix(after).unwrap_or(inner), seen);
        }
        if row.text.starts_with("url: address <number>") {
            let (_, reason) = text["url: ".len()..].split_once(": ").unwrap_or_default();
            return self.find(&format!("url: {reason}"), seen);
        }
        let Some(start) = row.text.strip_suffix("<detail>)") else {
            return Ok(());
        };
        let detail = &text[start.len()..text.len() - 1];
        let details: Vec<&Row> = self.details.iter().filter(|row| row.fits(detail)).collect();
        seen.extend(details.iter().map(|row| row.text.clone()));
        match details.len() {
            0 | 1 => Ok(()),
            count => Err(format!("in {count} rows of details: {detail}")),
        }
    }
}

/// The variants of the library's errors, each with the name of its type, and the kinds of failures.
pub(super) fn variants(api: &str) -> (Vec<(String, String)>, Vec<String>) {
    let (mut errors, mut kinds) = (Vec::new(), Vec::new());
    for path in api.lines().filter_map(|line| line.strip_prefix("pub luagate")) {
        let names: Vec<&str> = path.split('(').next().unwrap_or_default().split("::").collect();
        match names.as_slice() {
            [.., "FailureKind", kind] => kinds.push((*kind).to_owned()),
            ["", .., error, variant] if path.contains('(') => {
                errors.push(((*error).to_owned(), (*variant).to_owned()));
            }
            _ => {}
        }
    }
    (errors, kinds)
}
