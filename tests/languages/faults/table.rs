//! The table of faults, and the exceptions.

use super::client::Client;
use super::{
    access, busy_client, calls, cluster, counters, ending, errors, failover, messages, no_script, posted,
    process, sentinel, several, silence, subscription, suspend, work,
};
use libtest_mimic::Failed;

pub struct Fault {
    pub name: &'static str,
    pub test: fn(&Client) -> Result<(), Failed>,
    /// Also with the oldest supported version of the underlying library, and with other libraries.
    pub on_variants: bool,
}

const fn new(name: &'static str, test: fn(&Client) -> Result<(), Failed>) -> Fault {
    Fault { name, test, on_variants: false }
}

const fn on_all(name: &'static str, test: fn(&Client) -> Result<(), Failed>) -> Fault {
    Fault { name, test, on_variants: true }
}

pub const FAULTS: [Fault; 60] = [
    new("silent_server_before_the_first_wait", silence::before_the_first_wait),
    on_all("silent_server_during_the_wait", silence::during_the_wait),
    new("silent_server_after_the_wait", silence::after_the_wait),
    new("silent_server_behind_patient_callers", silence::behind_patient_callers),
    new("silent_server_from_the_first_call_on", silence::from_the_first_call_on),
    on_all("silent_server_with_default_settings_of_the_client", silence::with_default_settings),
    new("silent_server_and_calls_without_a_deadline", silence::calls_without_a_deadline_end),
    new("silent_server_and_a_cancelled_call", silence::a_cancelled_call_ends_at_once),
    new("cancelled_call_and_other_connections", silence::a_cancelled_call_ends_no_other_connection),
    new("silent_server_ends_a_wait_after_ten_seconds", silence::a_wait_in_line_ends_after_an_outage),
    on_all("silent_connections_are_replaced", silence::dead_connections_are_replaced),
    new("call_arrives_after_its_repetition_was_denied", silence::late_call),
    new("no_server", silence::no_server),
    on_all("subscription_is_silently_dead", subscription::silently_dead),
    new("subscription_is_closed", subscription::closed),
    new("subscription_is_kept_during_a_long_wait", subscription::kept),
    new("server_without_subscribe_publish_or_pubsub", subscription::unknown_commands),
    on_all("messages_of_others", messages::broken),
    on_all("server_refuses_script", no_script::refused),
    on_all("wrong_password", access::wrong_password),
    new("missing_permission", access::missing_permission),
    new("permissions_of_the_readme", access::permissions_of_the_readme),
    on_all("endpoint_moves_to_another_server", failover::moved),
    new("server_is_not_ready", failover::not_ready),
    new("server_is_busy", failover::busy),
    on_all("errors_of_servers_and_proxies", errors::each),
    on_all("server_refuses_writes_for_a_time", errors::writes_refused),
    new("server_restarts_without_data", failover::restarted),
    new("reply_is_read_after_the_lease", process::late_reply),
    new("process_is_paused_while_it_is_granted", process::paused_while_granted),
    new("process_is_paused_while_it_holds", process::paused_while_held),
    new("machine_is_suspended", suspend::suspended),
    new("wall_clock_makes_a_step", suspend::wall_clock_steps),
    new("many_waiters_are_cancelled_on_a_slow_link", process::many_cancelled_on_a_slow_link),
    new("calls_are_cancelled_at_random", process::cancelled_calls),
    new("interrupts_at_random", process::interrupts),
    new("interrupts_everywhere", process::interrupts_everywhere),
    new("process_forks", process::fork),
    new("second_event_loop", process::second_event_loop),
    new("work_returns_and_the_release_fails", work::result_is_kept),
    new("work_fails_and_the_release_fails", work::error_is_kept),
    new("work_loses_its_permit_and_asks", work::loss_is_reported),
    new("work_loses_its_permit_and_does_not_ask", work::loss_is_not_reported_unasked),
    new("work_loses_its_permit_and_fails", work::loss_does_not_replace_an_error),
    on_all("close_ends_waiters", ending::close_ends_waiters),
    new("close_while_the_server_is_silent", ending::close_in_silence),
    new("client_is_closed_before_the_gate", ending::client_closed_first),
    new("program_ends_without_close", ending::exit_without_close),
    new("close_leaves_no_thread", ending::close_leaves_no_thread),
    new("limit_in_force_is_reported", calls::limits),
    new("denials_contain_their_numbers", calls::denials),
    new("permanent_lease", calls::permanent),
    new("labels_and_revocation", calls::labels_and_revocation),
    new("readers_and_writers", calls::readers_and_writers),
    new("acquire_without_timeout", calls::no_timeout),
    new("several_with_permanent_leases", several::permanent),
    new("several_become_permanent_when_all_are_granted", several::permanent_when_all_are_granted),
    new("silent_server_and_several", several::silent_server),
    new("silent_server_and_a_cancelled_release_of_several", several::release_is_cancelled),
    new("calls_for_several_are_cancelled_at_random", several::cancelled_calls),
];

/// Faults that need what only some languages have.
pub const MORE: [Fault; 13] = [
    new("invalid_arguments", calls::arguments),
    new("other_kinds_of_client_objects", calls::kinds_of_clients),
    new("block_ends_and_replies_are_held_back", posted::without_reply),
    on_all("call_follows_the_release_of_a_block", posted::later_call),
    new("release_of_a_block_finds_a_loss", posted::loss_is_reported),
    on_all("client_without_a_free_connection", busy_client::without_connections),
    new("counters_of_calls", counters::of_calls),
    new("counters_of_the_background", counters::of_the_background),
    new("master_of_a_cluster_fails", cluster::master_fails),
    new("slots_of_a_cluster_move_while_callers_wait", cluster::slots_move),
    new("node_of_a_cluster_stands_still", cluster::node_stands_still),
    new("master_of_sentinels_fails", sentinel::master_fails),
    new("master_of_sentinels_stands_still", sentinel::master_stands_still),
];

const NO_FORK: &str = "a fork of this runtime is not supported by the language";
const NO_LOOP: &str = "only asyncio binds objects to an event loop";
const AT_ONCE: &str = "callers that are not in line yet get the error at once, and decide";
const FLUSH: &str = "`flush` waits for releases; a `Cancel` or a dropped future ends waiters";
const OWN: &str = "its gate has opened connections of its own from the start";
const NO_CLIENT: &str = "the library has no client of another library below it";

const CANCEL: &str = "`Cancel` ends a wait when its call was answered, or after the read timeout";

/// A fault, the clients that it cannot happen to, and the reason.
pub const EXCEPTIONS: &[(&str, &[&str], &str)] = &[
    (
        "machine_is_suspended",
        &["go"],
        "this test cannot replace its clock: `clients/go/clock_test.go` tests it",
    ),
    ("process_forks", &["javascript", "go", "java"], NO_FORK),
    ("process_forks", &["rust", "rust_async"], "`tests/permits/forks.rs` tests it"),
    ("process_forks", &["asyncio"], "an event loop cannot be used after a fork"),
    ("permissions_of_the_readme", &["rust", "rust_async"], "`tests/connections/acl` tests it"),
    ("second_event_loop", &["python", "javascript", "go", "java", "rust", "rust_async"], NO_LOOP),
    ("silent_server_and_a_cancelled_call", &["python"], "a thread in Python cannot be cancelled"),
    ("cancelled_call_and_other_connections", &["python"], "a thread in Python cannot be cancelled"),
    ("cancelled_call_and_other_connections", &["rust"], CANCEL),
    ("many_waiters_are_cancelled_on_a_slow_link", &["python"], "a thread in Python cannot be cancelled"),
    ("calls_are_cancelled_at_random", &["python"], "a thread in Python cannot be cancelled"),
    ("calls_for_several_are_cancelled_at_random", &["python"], "a thread in Python cannot be cancelled"),
    (
        "silent_server_and_a_cancelled_release_of_several",
        &["python"],
        "a thread in Python cannot be cancelled",
    ),
    (
        "interrupts_at_random",
        &["javascript", "go", "rust", "rust_async"],
        "the language interrupts no running code",
    ),
    (
        "interrupts_everywhere",
        &["asyncio", "javascript", "go", "java", "rust", "rust_async"],
        "code is interrupted only where it waits, or not at all",
    ),
    (
        "silent_server_ends_a_wait_after_ten_seconds",
        &["rust", "rust_async"],
        "a setting bounds the outage: `tests/waiting/waiting/outages.rs` tests it",
    ),
    ("silent_connections_are_replaced", &["rust", "rust_async"], AT_ONCE),
    (
        "call_arrives_after_its_repetition_was_denied",
        &["rust", "rust_async"],
        "`tests/waiting/waiting/outages.rs` tests it",
    ),
    ("silent_server_and_a_cancelled_call", &["rust"], CANCEL),
    ("close_ends_waiters", &["rust", "rust_async"], FLUSH),
    ("close_while_the_server_is_silent", &["rust", "rust_async"], FLUSH),
    ("client_is_closed_before_the_gate", &["rust", "rust_async"], NO_CLIENT),
    ("other_kinds_of_client_objects", &["rust", "rust_async"], NO_CLIENT),
    ("release_of_a_block_finds_a_loss", &["rust", "rust_async"], "`Permit::release` returns it"),
    ("client_without_a_free_connection", &["rust", "rust_async"], NO_CLIENT),
    ("client_without_a_free_connection", &["python", "asyncio", "javascript", "java"], OWN),
    ("invalid_arguments", &["rust", "rust_async"], "`tests/contract/fuzz_arguments` tests it"),
    ("work_loses_its_permit_and_fails", &["rust_async"], "`run_async` ends the work at the loss"),
];

/// Why this fault cannot happen to this client.
pub fn exception(fault: &str, client: &Client) -> Option<&'static str> {
    let found =
        EXCEPTIONS.iter().find(|(name, clients, _)| *name == fault && clients.contains(&client.base()));
    found.map(|(_, _, why)| *why)
}
