//! One call, executed by a server. Checks every word of it and how its reply is read.

use super::fields::{assert_fields, plain, text_of};
use super::wrong::{refuse, wrong_fields, wrong_rows};
use crate::call::SCRIPTS;
use crate::protocol::call::Call;
use crate::protocol::value::Value;
use crate::scripts::{Loaded, Scripts, raw};
use crate::wire::commands;
use luagate_memory::Server;
use redis::ConnectionLike;
use std::collections::BTreeSet;
use std::fmt::Debug;

/// A server, and the keys that replace `K` in the expected commands.
pub(super) struct Wire<'a> {
    pub(super) scripts: &'a Scripts,
    pub(super) server: Server,
    pub(super) loaded: Loaded,
    pub(super) keys: &'a str,
    /// Each script, with the first word of each of its replies.
    pub(super) seen: BTreeSet<(String, String)>,
}

impl Wire<'_> {
    /// Checks that a call of this script has these words after the SHA-1, and that each field of the parsed
    /// answer equals the field of the same name in the reply.
    #[track_caller]
    pub(super) fn call<C: Call>(&mut self, script: &str, call: C, expected: &str)
    where
        C::Answer: Debug,
    {
        let packed = call.pack(&SCRIPTS);
        let sha1 = &self.loaded.names()[script];
        let expected = format!("EVALSHA {sha1} {}", expected.replacen('K', self.keys, 1));
        let command = commands(packed.by_sha1()).remove(0);
        let shown = command.iter().map(|word| match word.as_slice() {
            b"" => "''".into(),
            word => String::from_utf8_lossy(word),
        });
        assert_eq!(shown.collect::<Vec<_>>().join(" "), expected);
        assert_eq!(packed.key(), command[3], "the first key");

        let reply = raw(self.server.req_packed_command(packed.by_sha1())).unwrap();
        let answer = format!("{:?}", call.answer(reply.clone()).unwrap());
        let replies = &self.scripts.replies()[script];
        let (word, fields) = match replies.get("") {
            Some(fields) => ("", fields.clone()),
            None => {
                let Value::Array(values) = &reply else { panic!("{reply:?}") };
                let word = text_of(&values[0]);
                (word, [&["".to_owned()], &replies[word][..]].concat())
            }
        };
        self.seen.insert((script.to_owned(), word.to_owned()));
        let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
        let wrong = match (word, &fields[..]) {
            ("", &[field]) => {
                assert_eq!(answer, plain(script, &reply)); // the field is the reply itself
                wrong_fields(field, &reply)
            }
            _ => {
                let variant = answer.split(['(', ' ']).next().unwrap().to_lowercase();
                let is_of = match word {
                    "" => variant == "state",
                    "refreshed" => variant == "some",
                    "lost" => variant == "none",
                    word => variant == word.replace('_', ""),
                };
                assert!(is_of, "{word}: {answer}");
                if word != "lost" {
                    assert_fields(&fields, &reply, &answer);
                }
                wrong_rows(&fields, &reply)
            }
        };
        for reply in wrong {
            refuse(&call, reply);
        }
    }
}
