//! The targets, by what they read.

pub mod arguments;
pub mod completions;
pub mod labels;
pub mod lines;
pub mod messages;
pub mod names;
pub mod replies;
pub mod reports;
pub mod resp;
pub mod urls;

/// The text in these bytes.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Texts as seeds.
fn texts(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}
