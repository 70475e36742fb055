//! The text of the metrics after the last reading. A scrape gets it without a call to the server.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

#[derive(Default)]
pub struct Cache {
    text: Mutex<Option<Arc<str>>>,
    changed: Condvar,
}

impl Cache {
    pub fn set(&self, text: String) {
        *self.text.lock().unwrap_or_else(PoisonError::into_inner) = Some(text.into());
        self.changed.notify_all();
    }

    /// Blocks only until the first reading has ended.
    pub fn get(&self) -> Arc<str> {
        let mut text = self.text.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(text) = &*text {
                return text.clone();
            }
            text = self.changed.wait(text).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
