//! Promise: every shell example in `lua/README.md` works as shown, with the replies and messages of a real
//! server.
#![cfg(unix)]

mod likeness;
mod page;
mod reply;
mod script;
mod shell;

use crate::own;
use crate::support::{self, Server};

use likeness::Likeness;
use page::{Block, Example, Line, Message, blocks};
use reply::{Kind, Shown, Value, printed, shown};
use script::{Script, scripts};
use shell::{Shell, find};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::path::Path;
use std::rc::Rc;

/// A run of the page's examples, from its start.
struct Run {
    scripts: Rc<BTreeMap<String, Script>>,
    shell: Shell,
    con: redis::Connection,
    likeness: Likeness,
    /// The scripts that the examples have called.
    called: BTreeSet<String>,
    /// Which fields appeared with their names, and which without.
    named: BTreeSet<(String, Vec<String>)>,
    unnamed: BTreeSet<(String, Vec<String>)>,
    /// The commands so far. They contain the secrets of waits.
    commands: Vec<String>,
    /// Signed messages, as shown and as received.
    signed: Vec<(String, String)>,
}

impl Run {
    fn example(&mut self, example: &Example) -> Result<(), String> {
        let script = example.command.strip_prefix("redis-cli EVALSHA $");
        let command = match script {
            Some(_) => self.likeness.here(&example.command),
            None => example.command.clone(), // as shown
        };
        let message = example.message.as_ref();
        let subscription = message.map(|message| self.shell.subscribe(&message.channel));
        let start = self.time();
        let output = self.shell.run(&command);
        let ran = start..=self.time();
        self.commands.push(command);
        match script {
            Some(rest) => {
                let name = rest.split(' ').next().unwrap();
                self.reply(name, example, printed(&output), &ran)?;
            }
            None => self.plain(example, &output)?,
        }
        match (message, subscription) {
            (Some(message), Some(subscription)) => {
                let real = subscription.message(&message.channel);
                self.message(message, &real, &ran)
            }
            _ => Ok(()),
        }
    }

    fn time(&mut self) -> i64 {
        let time: (i64, i64) = redis::cmd("TIME").query(&mut self.con).unwrap();
        time.0 * 1_000 + time.1 / 1_000
    }

    /// Checks a script's first call: the script's text and the names of its arguments.
    fn first_call(&mut self, name: &str, script: &Script, example: &Example) -> Result<(), String> {
        let loaded = self.shell.run(&format!("printf %s ${name}"));
        if loaded != script.sha1 {
            return Err(format!("{name} has another text in the manifest"));
        }
        let words = self.shell.run(&format!("set -- {}; echo $4 $#", example.command));
        let words: Vec<usize> = words.split(' ').map(|word| word.parse().unwrap()).collect();
        let count = words[1] - words[0] - 4; // EVALSHA, script and number of keys precede them
        let argv = script.argv[..count.min(script.argv.len())].join(" ");
        if !begins_with(&example.remark, &argv) {
            return Err(format!("its arguments are {argv}, not {}", example.remark));
        }
        Ok(())
    }

    fn reply(
        &mut self,
        name: &str,
        example: &Example,
        reply: Value,
        ran: &RangeInclusive<i64>,
    ) -> Result<(), String> {
        let scripts = self.scripts.clone();
        let script = scripts.get(name).ok_or("no such script")?;
        if self.called.insert(name.to_owned()) {
            self.first_call(name, script, example)?;
        }
        let real = script.values(reply);
        let names = script.names(&real);
        let names = names.ok_or_else(|| format!("not in the manifest: {real:?}"))?;
        let mut values = Vec::new();
        let mut is_named = names.concat().is_empty(); // a reply of one word has no names
        for Line { values: line, names: below, remark } in &example.reply {
            let of_line = shown(line);
            if let Some(below) = below {
                check_names(below, &of_line, &names[values.len().min(names.len())..])?;
                is_named = true;
            }
            is_named |= names.len() == 1 && begins_with(remark, &names[0]);
            values.extend(of_line);
        }
        let fields = (name.to_owned(), names.clone());
        if is_named {
            self.named.insert(fields);
        } else {
            self.unnamed.insert(fields);
        }
        self.likeness.compare(&values, &real, &names, ran)
    }

    /// Any other command must print exactly what is shown. A command about a message of the page also runs
    /// with the real message.
    fn plain(&mut self, example: &Example, output: &str) -> Result<(), String> {
        let lines: Vec<&str> = example.reply.iter().map(|line| &*line.values).collect();
        let expected = lines.join("\n");
        if output != expected {
            return Err(format!("{expected} is shown, not {output}"));
        }
        for (shown, real) in self.signed.clone() {
            let ((text, signature), (here, signature_here)) = (signed(&shown), signed(&real));
            if example.command.contains(text) {
                let output = self.shell.run(&example.command.replace(text, here));
                let expected = expected.replace(signature, signature_here);
                if output != expected {
                    return Err(format!("for the real message: {output}, not {expected}"));
                }
            }
        }
        Ok(())
    }

    fn message(&mut self, message: &Message, real: &str, ran: &RangeInclusive<i64>) -> Result<(), String> {
        let start = format!("{}#", message.channel);
        let secrets = self.commands.iter().rev();
        let mut secrets = secrets.filter_map(|command| command.split_once(&start)?.1.split(' ').next());
        let (mut shown_text, mut real_text) = (&*message.text, real);
        if let Some(secret) = secrets.next() {
            for text in [&mut shown_text, &mut real_text] {
                let (unsigned, signature) = signed(text);
                let sha1 = sha1_smol::Sha1::from(format!("{secret}{unsigned}"));
                if sha1.digest().to_string() != signature {
                    return Err(format!("the signature of {text}"));
                }
                *text = unsigned;
            }
            let pair = (message.text.clone(), real.to_owned());
            self.signed.push(pair);
        }
        let values: Vec<Value> = real_text
            .split(' ')
            .map(|word| match word.parse() {
                Ok(number) => Value::Number(number),
                Err(_) => Value::Text(word.to_owned()),
            })
            .collect();
        let names = ["", "permits", "fence", "expires_at", "now"].map(str::to_owned);
        self.likeness.compare(&shown(shown_text), &values, &names, ran)
    }
}

/// Whether a remark begins with these whole words.
fn begins_with(remark: &str, words: &str) -> bool {
    let rest = remark.strip_prefix(words);
    words.is_empty() || rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
}

/// A message without its signature, and the signature.
fn signed(text: &str) -> (&str, &str) {
    text.rsplit_once(' ').unwrap_or_default()
}

/// Checks that each name stands in the column of its value. The same holds for the values of a list that
/// fills a line.
fn check_names(below: &str, values: &[Shown], names: &[String]) -> Result<(), String> {
    let name_at = |column: usize| {
        let text = below.get(column..).unwrap_or_default();
        text.split(|c: char| !c.is_ascii_lowercase() && c != '_')
            .next()
            .filter(|_| column == 0 || below.as_bytes()[column - 1] == b' ')
            .filter(|name| !name.is_empty())
    };
    if let [Shown { kind: Kind::List(list), .. }] = values {
        let inner = match list.first().map(|first| &first.kind) {
            Some(Kind::List(inner)) => inner,
            _ => list,
        };
        let all_named = inner.iter().all(|value| name_at(value.column).is_some());
        return all_named.then_some(()).ok_or_else(|| format!("names in other columns: {below}"));
    }
    for (value, name) in values.iter().zip(names) {
        let found = name_at(value.column);
        if !name.is_empty() && found != Some(name) {
            return Err(format!("{name} is named {found:?}: {below}"));
        }
    }
    Ok(())
}

#[test]
fn every_example_replies_as_shown() {
    let server = own!(Server::private(&[]));
    let Some(redis_cli) = find("redis-cli").or_else(|| find("valkey-cli")) else {
        return support::skip_since("needs a redis-cli on the PATH");
    };
    if find("sha1sum").is_none() {
        return support::skip_since("needs a sha1sum on the PATH");
    }
    let scripts = scripts();
    let replies = scripts.values().flat_map(|script| script.replies.values());
    let fields: BTreeSet<String> = replies.flatten().cloned().collect();
    let page = std::fs::read_to_string("lua/README.md").unwrap();
    let socket = server.url.strip_prefix("unix://").unwrap();
    let mut run = Run {
        shell: Shell::start(Path::new("lua"), &redis_cli, socket),
        con: server.connection(),
        scripts: Rc::new(scripts),
        likeness: Likeness::default(),
        called: BTreeSet::new(),
        named: BTreeSet::new(),
        unnamed: BTreeSet::new(),
        commands: Vec::new(),
        signed: Vec::new(),
    };
    for block in blocks(&page, &fields) {
        match block {
            Block::Shell(text) => assert_eq!(run.shell.run(&text), "", "{text}"),
            Block::Examples(examples) => {
                for example in examples {
                    let result = run.example(&example);
                    result.unwrap_or_else(|error| panic!("$ {}\n{error}", example.command));
                }
            }
        }
    }
    let all: BTreeSet<String> = run.scripts.keys().cloned().collect();
    assert_eq!(run.called, all, "the page has an example of each script");
    let mut without_names = run.unnamed.difference(&run.named);
    assert_eq!(without_names.next(), None, "the names of these fields are never shown");
    assert!(!run.signed.is_empty(), "the page shows a signed message");
}
