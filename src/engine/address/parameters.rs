//! The parameters of a URL, as in `?db=2&user=name`. Each one is used or refused: programs in other languages
//! may use it, and would then not see what this program holds.

use redis::ConnectionInfo;
use std::borrow::Cow;

/// The parameters that are accepted, for messages.
const ACCEPTED: &str = "Accepted: db, user or username, password or pass, and protocol";

/// What the parameters of a URL set.
#[derive(Default)]
pub(super) struct Parameters {
    db: Option<i64>,
    user: Option<String>,
    password: Option<String>,
}

impl Parameters {
    /// Reads the pairs of a name and a value. An error contains no value, and no name that may be a piece of
    /// a password.
    pub(super) fn read<'a>(
        pairs: impl Iterator<Item = (Cow<'a, str>, Cow<'a, str>)>,
    ) -> Result<Parameters, String> {
        let (mut found, mut protocol) = (Parameters::default(), None);
        for (name, value) in pairs {
            match &*name {
                "db" => set("db", &mut found.db, &value, |db| db.parse().ok().filter(|db| *db >= 0))?,
                "user" | "username" => set("user", &mut found.user, &value, text)?,
                "password" | "pass" => set("password", &mut found.password, &value, text)?,
                // The gate always uses RESP2. Other clients need it in the same URL.
                "protocol" => set("protocol", &mut protocol, &value, version)?,
                name => return Err(unknown(name, &value, found.password.is_some())),
            }
        }
        Ok(found)
    }

    /// Adds these settings to those from the other parts of the URL. `has_db`: its path names a database.
    pub(super) fn add_to(self, info: ConnectionInfo, has_db: bool) -> Result<ConnectionInfo, String> {
        let former = info.redis_settings().clone();
        let (db, user, password) = (has_db.then(|| former.db()), former.username(), former.password());
        let mut settings = former.clone();
        if let Some(given) = only("database", db, self.db)? {
            settings = settings.set_db(given);
        }
        if let Some(given) = only("user", user, self.user.as_deref())? {
            settings = settings.set_username(given);
        }
        if let Some(given) = only("password", password, self.password.as_deref())? {
            settings = settings.set_password(given);
        }
        Ok(info.set_redis_settings(settings))
    }
}

/// Sets a value that was not set before.
fn set<T>(
    name: &str,
    to: &mut Option<T>,
    value: &str,
    read: impl FnOnce(&str) -> Option<T>,
) -> Result<(), String> {
    if to.is_some() {
        return Err(format!("the parameter {name} is given twice. Accepted: once"));
    }
    *to = read(value);
    match (to, name) {
        (Some(_), _) => Ok(()),
        (None, "db") => Err("the database is not a number. Accepted: db=0, db=1 and so on".to_owned()),
        (None, "protocol") => {
            Err("the protocol is not 2, 3, resp2 or resp3. Accepted: protocol=2".to_owned())
        }
        (None, name) => Err(format!(
            "the parameter {name} has no value, or one that is not UTF-8. Accepted: {name}=value"
        )),
    }
}

/// A text that is not empty. Bytes that are not UTF-8 have become U+FFFD.
fn text(value: &str) -> Option<String> {
    (!value.is_empty() && !value.contains(char::REPLACEMENT_CHARACTER)).then(|| value.to_owned())
}

fn version(value: &str) -> Option<()> {
    ["2", "3", "resp2", "resp3"].contains(&value).then_some(())
}

/// The error of an unknown parameter. After a password it may be a piece of it, behind a `&` that is not
/// escaped.
fn unknown(name: &str, value: &str, follows_password: bool) -> String {
    let is_plain = name.chars().all(|letter| letter.is_ascii_alphanumeric() || "_-.".contains(letter));
    if follows_password {
        format!("a parameter after the password is unknown. {ACCEPTED}. In a password, write & as %26")
    } else if is_plain && !name.is_empty() && !value.is_empty() {
        format!("the parameter {name} is unknown. {ACCEPTED}. Correct its name, or remove it")
    } else {
        format!("a parameter is unknown, or has no value. {ACCEPTED}. Correct or remove it")
    }
}

/// A value that two parts of the URL can set.
fn only<T: PartialEq>(what: &str, before: Option<T>, parameter: Option<T>) -> Result<Option<T>, String> {
    match (before, parameter) {
        (Some(before), Some(parameter)) if before != parameter => {
            Err(format!("the {what} of the parameter differs from the one before it. Accepted: one {what}"))
        }
        (before, parameter) => Ok(parameter.or(before)),
    }
}
