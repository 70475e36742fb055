//! The planted faults.

/// A change of the engine that breaks a promise.
pub struct Fault {
    /// What it does wrong.
    pub name: &'static str,
    /// A text that occurs once in the files: an expression, statements, or any text if `after` contains `FAULT`.
    pub before: &'static str,
    /// What replaces it while the fault is active. `FAULT` stands for whether it is.
    pub after: &'static str,
    /// The scenario that finds it.
    pub found_by: &'static str,
    /// The deviations that this takes at most.
    pub deviations: usize,
}

const fn fault(name: &'static str, before: &'static str, after: &'static str, found_by: &'static str) -> Fault {
    Fault { name, before, after, found_by, deviations: 2 }
}

pub const FAULTS: &[Fault] = &[
    // The reader.
    fault(
        "the role of the reader is lost when a waiter times out while it is offered",
        "return Slept { found, is_reader };",
        "return Slept { is_reader: is_reader && found.is_some(), found };",
        "two threads time out",
    ),
    fault(
        "the role is lost when it comes together with the outcome",
        "\n                        self.resign(lock(&self.reader));",
        "",
        "the last reader gets its outcome from the end",
    ),
    fault(
        "the role is lost when it comes together with a message",
        "\n                self.resign(lock(&self.reader));",
        "",
        "messages",
    ),
    fault(
        "the role comes back to a call that has timed out",
        "found.is_none() {\n                self.abandon",
        "found.is_none() && !FAULT {\n                self.abandon",
        "a thread times out",
    ),
    fault(
        "a thread that has stopped waiting can be made the reader",
        "state.waits = Waits::No;",
        "",
        "two threads time out",
    ),
    fault("a thread that is about to wait for a message cannot be made the reader", "place.awaits();", "", "messages"),
    fault(
        "a thread that is made the reader is not woken",
        "state.waits = Waits::Reader;\n                self.notify.wake(state);",
        "state.waits = Waits::Reader;",
        "calls",
    ),
    fault(
        "the role is not passed to threads that wait for replies",
        "packets.threads > 0 && threads.any(|waiter| waiter.place.make_reader())",
        "false",
        "calls",
    ),
    fault(
        "the role is not passed to threads that wait for messages",
        "packets.readers.values().any(|place| place.make_reader())",
        "false",
        "messages",
    ),
    fault("two threads are the reader", "!self.has_reader && self.end.is_none()", "self.end.is_none()", "calls"),
    fault(
        "the reader does not write what is left",
        "let writes = !packets.out.is_empty();",
        "let writes = !packets.out.is_empty() && !FAULT;",
        "more packets than may be unanswered",
    ),
    // The writer.
    fault("a writer stops while others append", "rounds == 0 && packets.will_be_written()", "rounds == 0", "calls"),
    fault(
        "a packet that nobody waits for counts as one that will be answered",
        "self.in_flight() > 0 && self.threads + self.tasks > 0",
        "self.threads + self.tasks > 0",
        "calls",
    ),
    fault(
        "two threads write",
        "packets.is_writing = true;\n            drop(packets);",
        "packets.is_writing = !FAULT;\n            drop(packets);",
        "calls",
    ),
    fault(
        "answered packets count as unanswered",
        "self.unanswered -= packet.bytes;\n        self.count",
        "if !FAULT { self.unanswered -= packet.bytes; }\n        self.count",
        "more packets than may be unanswered",
    ),
    // The connection's own thread.
    fault(
        "the own thread refuses the role because its last task has ended, and nobody reads",
        "!packets.pending.is_empty() && age >= LINGER",
        "false",
        "posts alone",
    ),
    fault(
        "the own thread is not called by a task",
        "self.call_thread(&mut packets);\n        }\n        drop(packets);\n        if flushes",
        "if !FAULT { self.call_thread(&mut packets); }\n        }\n        drop(packets);\n        if flushes",
        "calls",
    ),
    fault(
        "the own thread is not called by a post",
        "if !packets.thread.looks {",
        "if !packets.thread.looks && !FAULT {",
        "posts alone",
    ),
    fault(
        "the own thread is not called when the last thread that read leaves",
        "packets.needs_own_thread() || !(packets.pending.is_empty() || packets.thread.looks)",
        "!(packets.pending.is_empty() || packets.thread.looks)",
        "calls",
    ),
    fault(
        "the own thread is not called for a waiter that does not read",
        "packets.listeners += 1;\n        if !packets.has_reader {",
        "packets.listeners += 1;\n        if !packets.has_reader && !FAULT {",
        "messages, no waiter reads",
    ),
    fault(
        "the own thread does not read for waiters that do not read",
        "self.tasks + self.listeners > 0",
        "self.tasks > 0",
        "messages, a waiter does not read",
    ),
    fault(
        "the own thread does not read for some time",
        "self.listens_until.is_some_and(|until| machine_now() < until)",
        "false",
        "messages, read for some time",
    ),
    fault("the own thread is called only once", "packets.thread.is_called = false;", "", "calls with a pause"),
    fault(
        "the own thread is not started again after the system could not",
        "packets.thread.looks = packets.thread.is_running;",
        "packets.thread.looks = true;",
        "posts, and the system cannot start a thread",
    ),
    fault(
        "the own thread reads on after a task was dropped",
        "self.count(&owner, false);",
        "",
        "a task is dropped at once",
    ),
    fault(
        "the own thread reads on after a waiter has left",
        "lock(&self.0.packets).listeners -= 1;",
        "",
        "messages and a task",
    ),
    fault("the own thread is not told about the end", "\n        self.called.notify_one();", "", "calls"),
    // Replies.
    fault(
        "the reply of an abandoned packet goes to the next caller",
        "let owner = std::mem::replace(&mut packet.owner, Owner::Nobody);",
        "let owner = if FAULT { self.pending.remove(index.unwrap_or_default()).unwrap().owner } \
         else { std::mem::replace(&mut packet.owner, Owner::Nobody) };",
        "a thread times out",
    ),
    fault(
        "a later packet with the same number is abandoned",
        "packet.owner.is(waiter)",
        "true",
        "the server is silent, a task is dropped when it is woken",
    ),
    Fault {
        deviations: 3,
        ..fault("the numbers of packets are wrong", "self.first += 1;", "", "two threads time out")
    },
    fault(
        "a packet that was sent counts as not sent",
        "let error = if is_sent {",
        "let error = if is_sent && !FAULT {",
        "the server closes",
    ),
    fault(
        "a thread is not woken by its replies",
        "state.waits = Waits::Awake;\n                self.notify.wake(state); // a system call",
        "state.waits = Waits::Awake;\n                if !FAULT { self.notify.wake(state); } // a system call",
        "calls",
    ),
    fault(
        "a task is not woken by its replies",
        "(None, _) => Waits::Task(",
        "(None, _) if FAULT => Waits::No, (None, _) => Waits::Task(",
        "messages and a task",
    ),
    fault(
        "a task does not wake the others when it has its replies",
        "self.waiter.wake_others();\n        self.is_over = true;",
        "if !FAULT { self.waiter.wake_others(); }\n        self.is_over = true;",
        "two tasks of one thread",
    ),
    fault(
        "a task does not wake the others when it is dropped",
        "self.waiter.wake_others();\n            if self.flushes",
        "if !FAULT { self.waiter.wake_others(); }\n            if self.flushes",
        "two tasks of one thread, one is dropped",
    ),
    fault(
        "a task cannot wake the others because it was polled before it was woken",
        "lock(&self.others).take()",
        "lock(&self.others).replace(Vec::new())",
        "two tasks of one thread, and a thread that reads on",
    ),
    fault(
        "the last reader does not wake the tasks that nobody else wakes",
        "reader.wake_rest(); // the next read",
        "if !FAULT { reader.wake_rest(); } // the next read",
        "two tasks of one thread, one is not polled again",
    ),
    // The end.
    fault("waiters are not told about the end", "receiver.ended();", "", "messages, the server closes"),
    fault(
        "a call does not report why the connection has ended",
        "lock(&self.packets).end.as_ref().map_or_else(late, |end| end.clone())",
        "late()",
        "the owner closes",
    ),
    fault("a silent server is not noticed", "packets.times.waited += within;", "", "the server is silent"),
    fault(
        "a connection for messages is not tested",
        "packets.times.heartbeat - packets.times.received >= TEST",
        "false",
        "a silent connection for messages",
    ),
    // A look after a pause.
    fault(
        "a look does not write what others have submitted meanwhile",
        "\n        drop(self.write(lock(&self.packets), 1));",
        "",
        "a look while others write",
    ),
    fault(
        "others may write while the stream does not block",
        "packets.is_writing = true; // nobody",
        "packets.is_writing = !FAULT; // nobody",
        "calls after a pause",
    ),
    fault(
        "nobody may write after a look",
        "\n        lock(&self.packets).is_writing = false;",
        "",
        "calls after a pause",
    ),
    // The jobs of the gate's own thread.
    fault(
        "a thread that has started without jobs never gets them",
        "&& let Some(jobs) = self.jobs.get()\n        {",
        "&& let Some(jobs) = { state.has_jobs |= FAULT; self.jobs.get() }\n        {",
        "the jobs are set late, a task is dropped",
    ),
    fault(
        "a call at a time does not hand over jobs that were set late",
        "!state.has_jobs || state.sleeps_until",
        "!state.has_jobs && !FAULT || state.sleeps_until",
        "the jobs are set late, a job is called at a time",
    ),
    fault(
        "the thread takes the jobs after the gate was dropped",
        "jobs.append(&mut state.new_jobs);",
        "let given = std::mem::take(&mut state.new_jobs); drop(state); \
         let weak: Vec<_> = given.iter().map(Arc::downgrade).collect(); drop(given); \
         jobs.extend(weak.iter().filter_map(Weak::upgrade));",
        "the gate is dropped at once",
    ),
    fault(
        "a call at a time is missed, since the last sleep counts while the thread is awake",
        "(state.is_called, state.sleeps_until) = (false, None);",
        "state.is_called = false;",
        "a job is called at a time while the thread is awake",
    ),
    fault(
        "a call is missed while the thread is awake",
        "if state.is_called ||",
        "if state.is_called && !FAULT ||",
        "jobs are called",
    ),
    fault("a call at a time wakes nobody", "at < until", "false", "a job is called at an earlier time"),
    fault(
        "only the last job is called at its time",
        "at = at.into_iter().chain(next).min();",
        "at = next;",
        "jobs are called at a time",
    ),
    fault(
        "the time of a job is forgotten when another job ends",
        "NextWork::Never => false,",
        "NextWork::Never => { if FAULT { at = None; } false }",
        "jobs are called at a time",
    ),
    fault(
        "the thread is not started again after it has ended",
        "state.has_jobs) = (false, false);",
        "state.has_jobs) = (FAULT, false);",
        "the thread ends and is started again",
    ),
    fault(
        "a thread that is started again does not get the jobs",
        "return;\n            }\n            let timer",
        "state.has_jobs = FAULT;\n                return;\n            }\n            let timer",
        "the jobs are set late, the thread has ended",
    ),
    fault(
        "the thread is not started by the next call after the system could not",
        "state.is_called &= state.is_running;",
        "",
        "the thread of the jobs cannot be started",
    ),
    // The work of the gate's own thread.
    fault(
        "work that is woken while the thread is awake is missed",
        " !state.woken.is_empty() {",
        " !state.woken.is_empty() && !FAULT {",
        "work waits for a change",
    ),
    fault(
        "work that wakes itself is missed",
        "lock(&self.state).work.insert(number, work);",
        "let mut state = lock(&self.state); state.woken.remove(&number); state.work.insert(number, work);",
        "work wakes itself",
    ),
    fault(
        "work that is woken does not wake the thread",
        "state.woken.insert(self.number);\n            shared.wake(state);",
        "state.woken.insert(self.number);\n            if !FAULT { shared.wake(state); }",
        "work waits for a change",
    ),
    fault(
        "the thread ends although work waits",
        "jobs.is_empty() && state.work.is_empty()",
        "jobs.is_empty() && (state.work.is_empty() || FAULT)",
        "work wakes itself",
    ),
    fault(
        "work is polled with a lock held",
        "let waker = Waker::from(Arc::new(Wakes { shared: Arc::downgrade(self), number }));",
        "let waker = Waker::from(Arc::new(Wakes { shared: Arc::downgrade(self), number })); \
         let _locked = FAULT.then(|| lock(&self.state));",
        "work waits for a change",
    ),
    fault(
        "work that has ended is kept",
        "poll(&mut Context::from_waker(&waker)).is_pending()",
        "poll(&mut Context::from_waker(&waker)).is_pending() || FAULT",
        "work waits for a change",
    ),
    // The tasks that sleep.
    fault(
        "the thread ends although a task sleeps",
        "&& state.timers.is_empty() {",
        "&& (state.timers.is_empty() || FAULT) {",
        "tasks sleep",
    ),
    fault("a timer does not shorten the thread's sleep", "until < sleeps_until", "false", "tasks sleep"),
    fault(
        "the thread sleeps until the time of a job, although a task is earlier",
        "at.into_iter().chain(timer).min()",
        "at.or(timer)",
        "a task sleeps, and a job is called",
    ),
    fault(
        "a task that is dropped is woken",
        "lock(&self.shared.state).timers.remove(&self.key)",
        "None::<Waker>",
        "tasks sleep, one is dropped",
    ),
    fault(
        "the task's old waker is used",
        "if waker.will_wake(cx.waker()) => {}",
        "if waker.will_wake(cx.waker()) || FAULT => {}",
        "a task that sleeps has another waker",
    ),
    fault(
        "two tasks that sleep until the same time have one timer",
        "state.last += 1;\n        let key",
        "state.last += u64::from(!FAULT);\n        let key",
        "tasks sleep until the same time",
    ),
    fault("a task is woken only after its time", "timer.key().0 <= now", "timer.key().0 < now", "tasks sleep"),
    fault(
        "tasks are woken with a lock held",
        "drop(state);\n                due.into_iter()",
        "if !FAULT { drop(state); }\n                due.into_iter()",
        "tasks sleep",
    ),
    // A value that changes.
    fault(
        "the last thread that waits is not woken",
        "if sleeping > 0 {",
        "if sleeping > usize::from(FAULT) {",
        "threads wait for changes",
    ),
    fault(
        "only one thread is woken",
        "self.changed.notify_all();",
        "self.changed.notify_one();",
        "threads wait for changes",
    ),
    fault(
        "a thread sleeps on at its deadline",
        "if left.is_some_and(|left| left.is_zero()) {",
        "if left.is_some_and(|left| left.is_zero()) && !FAULT {",
        "a thread waits for nothing until a time",
    ),
    fault(
        "a thread forgets its deadline",
        "wait(&self.changed, state, left)",
        "wait(&self.changed, state, None)",
        "a thread waits for nothing until a time",
    ),
    fault(
        "only one task waits",
        "!state.wakers.last().is_some_and(|waker| waker.will_wake(cx.waker()))",
        "state.wakers.is_empty()",
        "tasks wait for changes",
    ),
    fault(
        "only the last task is woken",
        "wakers.into_iter().for_each(Waker::wake);",
        "wakers.into_iter().skip(usize::from(FAULT)).for_each(Waker::wake);",
        "tasks wait for changes",
    ),
    fault(
        "a task looks, and is missed before it waits",
        "let found = look(&mut state.value);\n                    if",
        "let found = look(&mut state.value);\n                    \
         if FAULT { drop(state); state = lock(&self.state); }\n                    if",
        "tasks wait for changes",
    ),
    fault(
        "tasks that wait are woken with a lock held",
        "let sleeping = state.sleeping;\n        drop(state);",
        "let sleeping = state.sleeping;\n        if !FAULT { drop(state); }",
        "tasks wait for changes",
    ),
    fault(
        "the result of work that blocks wakes nobody",
        "done_there.change(|done| *done = Some(result));",
        "done_there.look(|done| *done = Some(result));",
        "a task runs work that blocks",
    ),
    // Futures.
    fault(
        "a future is not late although it was woken",
        "future.woken.get_or_insert_with(|| self.clock.now());",
        "",
        "a future is not polled in line",
    ),
    fault(
        "a future counts as polled for ever",
        "this.polled.future().is_polling = false;",
        "",
        "a future is not polled in line",
    ),
    fault(
        "futures are looked at once",
        "state.looks_at = (!futures.is_empty()).then_some(now + INTERVAL);",
        "state.looks_at = None;",
        "a future is not polled in line",
    ),
    fault(
        "a future gives back its grants only once",
        "is_late && !future.is_polling && !future.asked.is_empty()",
        "is_late && !future.is_polling && !future.asked.is_empty() && !future.is_given_back",
        "a future that is not polled is granted late",
    ),
    fault(
        "a future is polled before its releases are posted",
        "if future.is_giving_back {",
        "if future.is_giving_back && !FAULT {",
        "a future is polled again when it is granted",
    ),
    Fault {
        name: "a future uses a grant that it has given back, since its message arrives late",
        before: "message.fence > 0 && self.future().has_asked_again",
        after: "false",
        found_by: "a future is polled again when it is granted",
        deviations: 3,
    },
    fault(
        "a future that is given back keeps its grant",
        "let is_kept = !future.is_given_back;",
        "let is_kept = FAULT || !future.is_given_back;",
        "a future is polled again while its grant is confirmed",
    ),
    fault(
        "a future wakes its task with its lock held",
        "let waker = future.waker.clone();\n        drop(future);",
        "let waker = future.waker.clone();\n        if !FAULT { drop(future); }",
        "a future gets a permit",
    ),
];
