//! A head start as a priority: how long callers with and without it wait, while more callers come than can be
//! served.

use luagate::Semaphore;
use luagate_benches::figure::{Figure, Limit};
use luagate_benches::rounds::median;
use luagate_benches::server::Server;
use luagate_benches::tasks::runtime;
use std::time::{Duration, Instant};

const LIMIT: u32 = 5;
const HOLD: Duration = Duration::from_millis(10);
const LASTS: Duration = Duration::from_secs(20);
/// How many callers come for each that can be served.
const LOAD: f64 = 1.1;
/// One caller of this many has a head start.
const URGENT: u32 = 10;
const HEAD_START: Duration = Duration::from_secs(10);

/// A call: when it came, its fence, and how long it waited in ms.
struct Served {
    is_urgent: bool,
    came: Instant,
    fence: u64,
    waited: f64,
}

async fn serve(semaphore: Semaphore, is_urgent: bool) -> Served {
    let came = Instant::now();
    let semaphore = if is_urgent { semaphore.head_start(HEAD_START) } else { semaphore };
    let permit = semaphore.acquire_async().await.unwrap();
    let (fence, waited) = (permit.fence(), came.elapsed().as_secs_f64() * 1e3);
    tokio::time::sleep(HOLD).await;
    permit.release_async().await.unwrap();
    Served { is_urgent, came, fence, waited }
}

async fn come(semaphore: &Semaphore) -> Vec<Served> {
    let each = HOLD.div_f64(f64::from(LIMIT) * LOAD);
    let begun = tokio::time::Instant::now();
    let mut calls = Vec::new();
    for number in 0.. {
        let at = each * number;
        if at > LASTS {
            break;
        }
        tokio::time::sleep_until(begun + at).await;
        calls.push(tokio::spawn(serve(semaphore.clone(), number % URGENT == 0)));
    }
    let mut served = Vec::with_capacity(calls.len());
    for call in calls {
        served.push(call.await.unwrap());
    }
    served
}

/// The longest time by which a caller came after one that was granted later, in ms.
fn overtaken(mut served: Vec<Served>) -> f64 {
    served.sort_by_key(|call| std::cmp::Reverse(call.fence));
    let (mut earliest, mut longest) = (None::<Instant>, Duration::ZERO);
    for call in served {
        longest =
            earliest.map_or(longest, |earliest| longest.max(call.came.saturating_duration_since(earliest)));
        earliest = Some(earliest.map_or(call.came, |earliest| earliest.min(call.came)));
    }
    longest.as_secs_f64() * 1e3
}

pub fn measure(server: &Server) -> Vec<Figure> {
    let semaphore = server.gate().semaphore("priority", LIMIT);
    let served = runtime().block_on(come(&semaphore));
    let waits =
        |is_urgent| median(served.iter().filter(|call| call.is_urgent == is_urgent).map(|call| call.waited));
    let (urgent, others) = (waits(true), waits(false));
    let longest = overtaken(served);
    let most = HEAD_START.as_secs_f64() * 1e3;
    let figure = |what: &str, ours, beside: (&'static str, f64), limit| {
        let ratio = ours / beside.1;
        Figure { what: what.to_owned(), unit: "ms", ours, beside, ratio, limit: Limit::AtMost(limit) }
    };
    vec![
        figure(
            "median wait with a head start of 10 s, 10 % of the calls, load 1.1",
            urgent,
            ("without it", others),
            0.1,
        ),
        figure(
            "how much later a caller came than one that it overtook",
            longest,
            ("the head start", most),
            1.0,
        ),
    ]
}
