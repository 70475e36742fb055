//! Three threads and two tasks, which do anything.

use crate::case::{Caller, Case, LONG, SHORT, STUCK, Setup};
use crate::mailboxes::How;
use crate::tasks::{Ending, Tasks, message};
use crate::wire::Death;
use crate::world::{choose, sleep};
use std::task::Waker;
use std::time::Duration;

const THREADS: [&str; 3] = ["A", "B", "C"];

/// Each thread and each task has a channel.
const CHANNELS: u8 = 5;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Op {
    Exchange(u8, Duration),
    Post(u8),
    PostTwo,
    Look,
    Pause,
    Wait(How, Duration),
}

fn op(has_messages: bool, has_posts: bool) -> Op {
    match choose(if has_messages { 14 } else { 10 }) {
        6 | 7 if !has_posts => Op::Exchange(1, LONG),
        0 | 1 => Op::Exchange(1, LONG),
        2 => Op::Exchange(2, LONG),
        3 | 4 => Op::Exchange(1, SHORT),
        5 => Op::Exchange(1, STUCK),
        6 => Op::Post(1 + choose(2) as u8),
        7 => Op::PostTwo,
        8 => Op::Look,
        9 => Op::Pause,
        10 => Op::Wait(How::Reads, SHORT),
        11 => Op::Wait(How::Listens, LONG),
        12 => Op::Wait(How::ListensFor(SHORT), SHORT),
        _ => Op::Wait(How::Reads, LONG),
    }
}

fn ending() -> Ending {
    match choose(8) {
        0 => Ending::Dropped(1 + choose(2)),
        1 => Ending::DroppedWoken(1 + choose(2)),
        2 => Ending::Forgotten(1 + choose(2)),
        _ => Ending::Done,
    }
}

fn event(case: &Case) {
    let deaths =
        [Death::Closes, Death::ClosesWithinReply, Death::ReadError, Death::WriteError, Death::Nonsense];
    match choose(16) {
        8 | 9 => case.closes(),
        number @ (10 | 13) => {
            case.event("silence", |common| common.wire.fall_silent());
            if number == 10 {
                case.event("end", |common| common.wire.answer_again());
            }
        }
        11 => case.event("signal", |common| common.wire.interrupt()),
        number => {
            if let Some(death) = deaths.get(number) {
                case.dies(*death);
            }
        }
    }
}

pub(super) fn anything() {
    let (has_messages, has_posts) = (choose(2) == 1, choose(2) == 1);
    let ops = THREADS.map(|_| (0..1 + choose(3)).map(|_| op(has_messages, has_posts)).collect::<Vec<_>>());
    let setup = Setup {
        steps: choose(5),
        looks: has_posts,
        may_be_late: true,
        has_pieces: choose(3) == 0,
        channels: if has_messages { CHANNELS } else { 0 },
        is_idle: choose(3) == 0,
        may_be_stuck: ops.iter().flatten().any(|op| matches!(op, Op::Exchange(_, STUCK))),
    };
    let mut case = Case::new(setup);
    event(&case);
    for ((channel, name), ops) in (0..).zip(THREADS).zip(ops) {
        let waits = ops.iter().filter(|op| matches!(op, Op::Wait(..)));
        waits.for_each(|_| publish(&case, channel));
        case.thread(name, move |caller| ops.iter().for_each(|op| perform(&caller, *op, channel, has_posts)));
    }
    let mut tasks = Tasks::new();
    for (channel, name) in [(3, "K"), (4, "L")] {
        let (asks, waits) = (1 + choose(2), has_messages && choose(3) == 0);
        if waits {
            publish(&case, channel);
        }
        let waker = tasks.add(&mut case, ending(), |caller| async move {
            for _ in 0..asks {
                caller.ask(1).await;
            }
            if waits {
                message(&caller, channel).await;
            }
        });
        if choose(3) == 0 {
            case.event("poll", move |_| Waker::from(waker).wake());
        }
        if channel == 3 && choose(2) == 0 {
            std::mem::replace(&mut tasks, Tasks::new()).start(&mut case, name);
        }
    }
    tasks.start(&mut case, "L");
    case.finish();
}

fn publish(case: &Case, channel: u8) {
    case.event("message", move |common| common.wire.publish(channel, 7));
}

fn perform(caller: &Caller, op: Op, channel: u8, has_posts: bool) {
    match op {
        Op::Exchange(replies, limit) => {
            if !caller.is_answered(replies, limit) && has_posts {
                caller.post(1); // like a release behind a call
            }
        }
        Op::Post(replies) => caller.post(replies),
        Op::PostTwo => caller.post_two(),
        Op::Look => caller.look_if_idle(),
        Op::Pause => sleep(Duration::from_millis(300)),
        Op::Wait(how, limit) => {
            caller.common.wait(channel, how, limit);
        }
    }
}
