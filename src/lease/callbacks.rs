//! Runs the user's callbacks on a separate thread.

use super::store::OnLost;
use crate::clock::{Busy, Clock};
use crate::error::Lost;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Sender, channel};

/// The thread for callbacks. The first loss starts it.
pub(crate) struct Callbacks {
    clock: Clock,
    sender: Option<Sender<(OnLost, Lost, Busy)>>,
}

impl Callbacks {
    pub(crate) fn new(clock: &Clock) -> Callbacks {
        Callbacks { clock: clock.clone(), sender: None }
    }

    pub(crate) fn run(&mut self, on_lost: OnLost, lost: Lost) {
        if self.sender.is_none() {
            self.sender = start();
        }
        // If no thread can be started, this callback is not called. The next loss tries again to start it.
        if let Some(sender) = &self.sender {
            let _ = sender.send((on_lost, lost, self.clock.busy()));
        }
    }
}

fn start() -> Option<Sender<(OnLost, Lost, Busy)>> {
    let (sender, receiver) = channel::<(OnLost, Lost, Busy)>();
    let thread = std::thread::Builder::new().name("luagate-on-lost".to_owned());
    let started = thread.spawn(move || {
        for (on_lost, lost, _busy) in receiver {
            // A panic in a callback is the user's concern. The next callback runs all the same.
            let _ = catch_unwind(AssertUnwindSafe(|| on_lost(&lost)));
        }
    });
    started.ok().map(|_| sender)
}
