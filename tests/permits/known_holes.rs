//! Known defects of widely used libraries, or of the first draft of this one. Each test has the number of its row in
//! the project's initial list of defects. The test's name is the defect, which must not occur here.

mod calls;
mod keys;
mod leases;
mod limit;
mod waiting;

use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);
