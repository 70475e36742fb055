//! The permissions that luagate needs, as `ACL SETUSER` names them, and how a missing one is recognised.
//!
//! A permission is tested with a call that changes nothing: the server checks the permission first, and then
//! refuses the arguments or finds no key. So the calls work on every server, with any user.

use super::report::{Judgement, broken, ok, warning};
use Use::{Acquiring, Autocomplete, Latches, Operating};

/// The functions that fail without a permission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    Acquiring,
    Latches,
    Autocomplete,
    Operating,
}

/// A permission, and a call that needs it. `KEY` and `CHANNEL` stand for names that nobody uses.
#[derive(Clone, Copy, Debug)]
pub struct Need {
    pub permission: &'static str,
    pub call: &'static str,
    pub purpose: Use,
}

const fn need(permission: &'static str, call: &'static str, purpose: Use) -> Need {
    Need { permission, call, purpose }
}

/// Not a call that can be made on a connection of the gate: it would receive messages from then on.
pub const SUBSCRIBE: Need = need("+subscribe", "SUBSCRIBE CHANNEL", Acquiring);

/// The only call that stores something. The trial of a semaphore removes its key, which needs UNLINK.
pub const LPUSH: Need = need("+lpush", "LPUSH KEY x", Autocomplete);

pub const NEEDS: [Need; 34] = [
    need("+ping", "PING", Acquiring),
    need("+evalsha", "EVALSHA 0000000000000000000000000000000000000000 0", Acquiring),
    need("+eval", "EVAL ( 0", Acquiring), // not a valid script, so it is not stored
    need("+time", "TIME", Acquiring),
    need("+hdel", "HDEL KEY x", Acquiring),
    need("+hget", "HGET KEY x", Acquiring),
    need("+hlen", "HLEN KEY", Acquiring),
    need("+hmget", "HMGET KEY x", Acquiring),
    need("+hset", "HSET KEY x x x", Acquiring), // a value is missing
    need("+persist", "PERSIST KEY", Acquiring),
    need("+pexpireat", "PEXPIREAT KEY 1", Acquiring),
    need("+unlink", "UNLINK KEY", Acquiring),
    need("+zadd", "ZADD KEY XX 1 x", Acquiring), // changes only what exists
    need("+zcard", "ZCARD KEY", Acquiring),
    need("+zcount", "ZCOUNT KEY 0 0", Acquiring),
    need("+zrange", "ZRANGE KEY 0 0", Acquiring),
    need("+zrangebyscore", "ZRANGEBYSCORE KEY 0 0", Acquiring),
    need("+zrank", "ZRANK KEY x", Acquiring),
    need("+zrem", "ZREM KEY x", Acquiring),
    need("+zrevrange", "ZREVRANGE KEY 0 0", Acquiring),
    need("+zscore", "ZSCORE KEY x", Acquiring),
    need("+publish", "PUBLISH CHANNEL x", Acquiring),
    need("+pubsub|numsub", "PUBSUB NUMSUB CHANNEL", Acquiring),
    need("+hexists", "HEXISTS KEY x", Latches),
    need("+zrevrangebyscore", "ZREVRANGEBYSCORE KEY 0 0", Latches),
    need("+llen", "LLEN KEY", Autocomplete),
    need("+lpos", "LPOS KEY x", Autocomplete),
    need("+lrange", "LRANGE KEY 0 0", Autocomplete),
    need("+lrem", "LREM KEY 0 x", Autocomplete),
    need("+ltrim", "LTRIM KEY 0 0", Autocomplete),
    need("+zrangebylex", "ZRANGEBYLEX KEY - +", Autocomplete),
    need("+info", "INFO server", Operating),
    need("+scan", "SCAN 0 COUNT 1", Operating),
    need("+config|get", "CONFIG GET appendfsync", Operating),
];

/// In addition on a node of a cluster.
pub const CLUSTER_NEEDS: [Need; 2] =
    [need("+cluster|slots", "CLUSTER SLOTS", Acquiring), need("+asking", "ASKING", Acquiring)];

impl Need {
    /// The words of the call.
    pub fn words(self, key: &str, channel: &str) -> Vec<String> {
        let name = |word| match word {
            "KEY" => key.to_owned(),
            "CHANNEL" => channel.to_owned(),
            word => word.to_owned(),
        };
        self.call.split(' ').map(name).collect()
    }

    /// The missing permission, from the text of a server that refused the call. Servers name a command or a
    /// kind of argument. No call has both a key and a channel.
    pub fn missing(self, refusal: &str, prefix: &str) -> String {
        let is_of_command = refusal.contains("to run the") || refusal.contains("can't run this command");
        match self.call {
            call if !is_of_command && call.contains("KEY") => format!("~{prefix}:*"),
            call if !is_of_command && call.contains("CHANNEL") => format!("&{prefix}:inbox:*"),
            _ => self.permission.to_owned(),
        }
    }
}

/// A missing permission. `user`: as `ACL WHOAMI` names it.
pub fn judge(missing: &str, purpose: Use, user: Option<&str>) -> Judgement {
    let found = format!("the permission {missing} is missing");
    let remedy = format!("Run `ACL SETUSER {} {missing}` on the server", user.unwrap_or("<user>"));
    let effect = match purpose {
        Acquiring => return broken(found, format!("Acquiring, waiting or releasing fails. {remedy}")),
        Latches => "Latches fail",
        Autocomplete => "Autocomplete fails",
        Operating => "Only this tool needs it, for `doctor`, `ls`, `top` and `export`",
    };
    warning(found, format!("{effect}. {remedy}"))
}

/// No permission is missing.
pub fn complete(user: Option<&str>, untested: Option<&str>) -> Judgement {
    let user = user.map_or_else(|| "the user".to_owned(), |user| format!("the user {user}"));
    match untested {
        None => ok(format!("{user} has all permissions")),
        Some(error) => warning(
            format!("the permissions of {user} could not be tested: {error}"),
            "Correct this, and run the command again",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::Grade;
    use super::*;
    use std::collections::BTreeSet;

    /// The permissions of the guide's ACL line are those that are tested, and those that only this tool
    /// needs.
    #[test]
    fn every_permission_of_the_guide_is_tested() {
        let guide = include_str!("../../../src/guide/production.md");
        let line = guide.lines().find(|line| line.starts_with("ACL SETUSER ")).unwrap();
        let listed: BTreeSet<&str> = line.split(' ').filter(|word| word.starts_with('+')).collect();
        let tested = NEEDS.iter().chain([&SUBSCRIBE, &LPUSH]).map(|need| need.permission);
        let tested: BTreeSet<&str> =
            tested.filter(|name| !["+info", "+scan", "+config|get"].contains(name)).collect();
        assert_eq!(tested, listed);
    }

    #[test]
    fn the_missing_permission_is_named_from_the_texts_of_all_versions() {
        let find = |call: &str| *NEEDS.iter().find(|need| need.call.starts_with(call)).unwrap();
        for (call, text, missing) in [
            ("HGET", "this user has no permissions to run the 'hget' command or its subcommand", "+hget"),
            ("HGET", "User a has no permissions to run the 'hget' command", "+hget"),
            ("HGET", "this user has no permissions to access one of the keys used as arguments", "~shop:*"),
            ("HGET", "No permissions to access a key", "~shop:*"),
            (
                "PUBLISH",
                "this user has no permissions to access one of the channels used as arguments",
                "&shop:inbox:*",
            ),
            ("PUBLISH", "No permissions to access a channel", "&shop:inbox:*"),
            ("PUBSUB", "User a has no permissions to run the 'pubsub|numsub' command", "+pubsub|numsub"),
        ] {
            assert_eq!(find(call).missing(text, "shop"), missing, "{text}");
        }
    }

    #[test]
    fn what_only_the_tool_needs_is_a_warning() {
        assert_eq!(judge("+hset", Acquiring, Some("web")).grade, Grade::Broken);
        let judged = judge("+scan", Operating, None);
        assert_eq!(judged.grade, Grade::Warning);
        assert!(judged.advice.unwrap().contains("ACL SETUSER <user> +scan"));
    }

    #[test]
    fn names_replace_the_placeholders() {
        assert_eq!(SUBSCRIBE.words("k", "c"), ["SUBSCRIBE", "c"]);
        assert_eq!(LPUSH.words("k", "c"), ["LPUSH", "k", "x"]);
    }
}
