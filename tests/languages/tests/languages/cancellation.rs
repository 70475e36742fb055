//! Cancelled calls, in the client of one language.

use super::language::Language;
use crate::server;
use libtest_mimic::Failed;

/// The languages that can cancel a call. Each has a program `cancel`.
pub const LANGUAGES: [&str; 3] = ["asyncio", "javascript", "go"];

/// Most of 1,000 calls of `acquire` are cancelled at random times: no permit and no place in line is left, and the other calls are
/// granted.
pub fn cancelled_calls_leave_nothing(language: &Language) -> Result<(), Failed> {
    let server = server();
    let output = language.run("cancel", &[&server.url, &server.prefix]).output()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let counts = String::from_utf8(output.stdout)?;
    let (granted, cancelled) = counts.trim().split_once(' ').ok_or("two numbers")?;
    let (granted, cancelled): (u32, u32) = (granted.parse()?, cancelled.parse()?);
    assert!(
        granted > 200 && cancelled > 20 && granted + cancelled == 1_000,
        "{granted} granted, {cancelled} cancelled"
    );
    let state = server.gate().semaphore("cancelled", 3).inspect()?;
    assert_eq!((state.in_use, state.waiter_count), (0, 0));
    Ok(())
}
