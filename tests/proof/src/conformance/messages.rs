//! Messages received on a channel.

use super::steps::Run;
use crate::pattern::bytes_of;
use redis::Value;
use serde_json::Value as Json;

impl Run<'_> {
    /// The messages on a channel that no step has consumed.
    fn unread(&mut self, channel: &str) -> Result<&mut Vec<String>, String> {
        let fresh = self.host.messages(channel);
        let unread = self.inboxes.get_mut(channel);
        let unread = unread.ok_or_else(|| format!("{channel} is not subscribed"))?;
        unread.extend(fresh);
        Ok(unread)
    }

    pub(super) fn message(
        &mut self,
        expected: &Json,
        inbox: &str,
        secret: Option<&str>,
    ) -> Result<(), String> {
        let channel = self.bindings.text(inbox)?;
        let unread = self.unread(&channel)?;
        if unread.is_empty() {
            return Err("no message".to_owned());
        }
        let message = unread.remove(0);
        let mut words: Vec<&str> = message.split(' ').collect();
        if let Some(secret) = secret {
            let said = words.pop();
            let signed = format!("{secret}{}", words.join(" "));
            if said != Some(&sha1_smol::Sha1::from(signed).digest().to_string()) {
                return Err(format!("wrong signature: {message}"));
            }
        }
        let words = words.iter().map(|word| match word.parse::<i64>() {
            Ok(number) if number.to_string() == *word => Value::Int(number),
            _ => Value::BulkString(bytes_of(word)),
        });
        self.bindings
            .check(expected, &Value::Array(words.collect()))
            .map_err(|error| format!("{error}, of {message}"))
    }

    pub(super) fn silent(&mut self, channel: &str) -> Result<(), String> {
        match self.unread(channel)?.first() {
            None => Ok(()),
            Some(message) => Err(format!("unexpected message: {message}")),
        }
    }

    pub(super) fn all_silent(&mut self) -> Result<(), String> {
        let channels: Vec<String> = self.inboxes.keys().cloned().collect();
        channels.iter().try_for_each(|channel| self.silent(channel))
    }
}
