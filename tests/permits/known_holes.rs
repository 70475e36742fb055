//! Defects that were seen in the libraries people use today, or in the first draft of this one: one test each, by the
//! number of its row in the list that this project was begun with. What a row says is what must not happen here.

mod calls;
mod keys;
mod leases;
mod limit;
mod waiting;

use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);
