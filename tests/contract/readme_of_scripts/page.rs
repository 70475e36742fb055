//! The blocks of the page: shell input, and examples with their replies.
//!
//! In an example, a line that begins with `$ ` is a command. Three spaces separate it from a remark. The
//! reply follows on the next lines, and the names of its values can follow below them. 20 spaces separate a
//! remark there. If the remark ends in `hears:`, the next text is a message on the channel that the remark
//! subscribes to.

use std::collections::BTreeSet;

pub enum Block {
    Shell(String),
    Examples(Vec<Example>),
}

#[derive(Default)]
pub struct Example {
    pub command: String,
    pub reply: Vec<Line>,
    pub message: Option<Message>,
    pub remark: String,
}

/// A line of a reply with its remark, and the line of names below it.
pub struct Line {
    pub values: String,
    pub remark: String,
    pub names: Option<String>,
}

pub struct Message {
    pub channel: String,
    pub text: String,
}

/// The blocks of a page, in order. `fields`: all names that a line of names may begin with.
pub fn blocks(page: &str, fields: &BTreeSet<String>) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        let Some(kind) = line.strip_prefix("```") else {
            continue;
        };
        let inside: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
        match kind {
            "sh" => blocks.push(Block::Shell(inside.join("\n"))),
            "text" => blocks.push(Block::Examples(examples(&inside, fields))),
            "lua" => {} // a part of a script, not shell input
            _ => panic!("unknown kind of block: {kind}"),
        }
    }
    blocks
}

fn examples(lines: &[&str], fields: &BTreeSet<String>) -> Vec<Example> {
    let mut examples: Vec<Example> = Vec::new();
    for line in lines.iter().filter(|line| !line.is_empty()) {
        if let Some(command) = line.strip_prefix("$ ") {
            let (command, remark) = command.split_once("   ").unwrap_or((command, ""));
            examples.push(Example {
                command: command.to_owned(),
                remark: remark.trim().to_owned(),
                ..Example::default()
            });
        } else {
            let example = examples.last_mut();
            example.expect("a command comes first").add(line, fields);
        }
    }
    for example in &examples {
        let is_reported = example.remark.contains("hears") == example.message.is_some();
        assert!(is_reported, "which message? {}", example.remark);
    }
    examples
}

impl Example {
    fn add(&mut self, line: &str, fields: &BTreeSet<String>) {
        if self.remark.contains("hears") && self.remark.ends_with(':') && self.message.is_none() {
            let channel = self.remark.split("SUBSCRIBE ").nth(1);
            let channel = channel.expect("a remark names the channel of the message");
            self.message = Some(Message {
                channel: channel.split('`').next().unwrap().to_owned(),
                text: line.trim().to_owned(),
            });
            return;
        }
        let (line, remark) = line.split_once(&" ".repeat(20)).unwrap_or((line, ""));
        self.remark = format!("{} {}", self.remark, remark.trim());
        let first = line.split([' ', ':']).next().unwrap();
        if line.is_empty() {
        } else if line.starts_with(' ') || fields.contains(first) {
            let above = self.reply.last_mut().expect("names are below values");
            above.names = Some(line.to_owned());
        } else {
            self.reply.push(Line {
                values: line.trim_end().to_owned(),
                remark: remark.trim().to_owned(),
                names: None,
            });
        }
    }
}
