//! The planted faults: each is a point `fault!` in the library, with this name.

use std::cell::Cell;

/// A fault that breaks a promise.
pub struct Fault {
    pub name: &'static str,
    /// The scenario that finds it.
    pub found_by: &'static str,
    /// The deviations that this takes at most.
    pub deviations: usize,
}

thread_local!(static ACTIVE: Cell<Option<&'static str>> = const { Cell::new(None) });

/// Makes this fault active in the current thread.
pub(crate) fn activate(fault: Option<&'static str>) {
    ACTIVE.set(fault);
}

/// Whether the fault with this name is active.
pub(crate) fn is_active(fault: &str) -> bool {
    ACTIVE.get() == Some(fault)
}

const fn fault(name: &'static str, found_by: &'static str) -> Fault {
    Fault { name, found_by, deviations: 2 }
}

pub const FAULTS: &[Fault] = &[
    fault("nobody reads for a post", "posts alone"),
    fault("a call does not report the end", "a write fails"),
    fault("nobody reads for a task", "calls"),
    fault("nobody reads for a wait", "messages, no waiter reads"),
    fault("a wait that has ended counts as one", "two tasks of one thread, and a thread that reads on"),
    fault("the own thread is not told about the end", "calls"),
    fault("waits are not told about the end", "messages, the server closes"),
    fault("a packet counts as one that will be answered before it is sent", "calls"),
    fault("two threads write", "calls"),
    fault("answered packets count as unanswered", "calls"),
    fault("callers count as waiting after their replies", "calls"),
    fault("the time of a caller does not end", "the server is silent, the time of a task ends"),
    fault("a packet that was sent counts as not sent", "the server closes"),
    fault("the reader is lost", "calls"),
    fault("nobody reads on", "calls"),
    fault("the own thread reads on", "calls"),
    fault("a connection for messages is not tested", "a silent connection for messages"),
    fault("the reader does not write what is left", "calls"),
    fault("others write while the stream does not block", "calls with a pause"),
    fault("nobody writes after a look", "calls with a pause"),
    fault("a look does not write what others have added", "a look while others write"),
    fault("the own thread does not read for posts", "posts alone"),
    fault("the own thread counts as awake while it sleeps", "calls"),
    fault("a silent server is not noticed", "the server is silent"),
    fault("a thread is not woken by a change", "calls"),
    fault("tasks are woken with a lock held", "calls"),
    fault("foreign code does not wake its thread", "calls with a pause"),
    fault("a waker is copied with a lock held", "calls"),
    fault("a waker is dropped with a lock held", "a task is dropped at once"),
    fault("a future copies its waker with a lock held", "a future gets a permit"),
    fault("only the last task is woken", "calls"),
    fault("a thread sleeps on at its deadline", "a thread waits for nothing until a time"),
    fault("a task is missed before it waits", "calls"),
    fault("a task's new waker is not used", "a task that waits has another waker"),
    fault("the result of work that blocks wakes nobody", "a task runs work that blocks"),
    fault("callers do not count as sleepers", "calls"),
    fault("waits for messages do not count as sleepers", "messages"),
    fault("nobody reads for a time without waits", "messages, read for some time"),
    fault("two threads read", "calls"),
    fault("a call at a time wakes nobody", "a job is called at an earlier time"),
    fault("the task's old waker is used", "a task that sleeps has another waker"),
    fault("a timer does not shorten the thread's sleep", "the jobs are set late, a task sleeps"),
    fault("a task that is dropped is woken", "the jobs are set late, a task is dropped"),
    fault("work that is woken does not wake the thread", "work waits for a change"),
    fault(
        "a thread that could not be started is not started again",
        "the thread of the jobs cannot be started",
    ),
    fault("a thread that has started without jobs never gets them", "the jobs are set late, a task sleeps"),
    fault("the time of a job is forgotten when another job ends", "jobs are called at a time"),
    fault("a timer copies its waker with a lock held", "tasks sleep"),
    fault("a call is missed while the thread is awake", "jobs are called"),
    fault("work that is woken while the thread is awake is missed", "work waits for a change"),
    fault("the thread ends although work waits", "work waits for a change"),
    fault("the thread ends although a task sleeps", "tasks sleep"),
    fault("the thread is not started again", "the jobs are set late, a task is dropped"),
    fault("a thread that is started again does not get the jobs", "the jobs are set late, a task is dropped"),
    fault("work is polled with a lock held", "work waits for a change"),
    fault("a writer stops while others add", "calls"),
    fault("a future is not late although it was woken", "a future is not polled after its call"),
    fault("a future that was polled is stopped", "a future is polled again in line"),
    fault("futures are looked at once", "a future is not polled after its call"),
];
