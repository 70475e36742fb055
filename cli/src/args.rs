//! The arguments of the command.

use crate::address::ServerArgs;
use clap::{ArgAction, Parser, Subcommand, ValueEnum};
use fundu::{DurationParser, TimeUnit};
use nix::sys::signal::Signal;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Fits a screen of 24 lines. `{options}` includes the positional arguments that are not hidden.
const SHORT: &str = "{about}\n{usage-heading} {usage}\n\n{all-args}{after-help}";

/// The same without an empty line before the options.
const DENSE: &str = "{about}\n{usage-heading} {usage}\n{all-args}{after-help}";

const TRY: &str = "\
Several names: all or none; they must share a group, as in {shop}:a {shop}:b.
Status: that of COMMAND, signal n (a shell shows 128+n), 64 usage, 69 server,
75 no permit, 79 permit lost, 126/127 cannot run COMMAND.
Example: luagate try -E 0 -q --at-least 10m nightly -- ./nightly.sh";

/// Limits how many processes run at once on machines that share a Redis server
#[derive(Parser)]
#[command(
    name = "luagate",
    version,
    help_template = "{about}\n{usage-heading} {usage}\n\n{all-args}{after-help}"
)]
#[command(
    term_width = 80,
    subcommand_required = true,
    disable_help_subcommand = true,
    disable_help_flag = true,
    disable_version_flag = true,
    after_help = "\
Example: LUAGATE_URL=redis://server/ luagate run -n 3 backup -- ./backup.sh
Server: --url URL, LUAGATE_URL, REDIS_URL; --password-file FILE; --prefix TEXT;
for TLS --ca, --cert, --key FILE. Durations: 500ms, 2.5s, 10m, 1h, 3 (seconds)"
)]
pub struct Args {
    #[command(flatten)]
    pub server: ServerArgs,
    /// Print help
    #[arg(short, long, global = true, hide = true, action = ArgAction::Help)]
    help: Option<bool>,
    /// Print the version
    #[arg(short = 'V', long, hide = true, action = ArgAction::Version)]
    version: Option<bool>,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// Run a command while holding a permit; wait in line for it
    Run(RunArgs),
    /// As run, but do not wait: status 75 if no permit is free
    #[command(
        override_usage = "luagate try [OPTIONS] [-n LIMIT] NAME... -- COMMAND [ARG]...",
        after_help = TRY,
        mut_arg("wait", |arg| arg.hide(true)),
        mut_arg("max_waiting", |arg| arg.hide(true)),
        mut_arg("quiet", |arg| arg.help("Print nothing if no permit is free"))
    )]
    Try(RunArgs),
    /// Acquire a permit that another process releases
    Acquire(AcquireArgs),
    /// Release a permit of acquire
    Release(ReleaseArgs),
    /// Start a new lease of a permit of acquire
    Refresh(RefreshArgs),
    /// List names: limit, in use, waiting, oldest holder
    Ls(LsArgs),
    /// Show holders and waiters, and since when
    Inspect(InspectArgs),
    /// Watch all names live
    Top(TopArgs),
    /// Take permits away, or places in line
    Revoke(RevokeArgs),
    /// Change the limit for all callers, at once
    Resize(ResizeArgs),
    /// Wait until others are done, or tell that you are
    Latch(LatchArgs),
    /// Check the server: settings, permissions, latency
    Doctor(DoctorArgs),
    /// Serve metrics for Prometheus
    Export(ExportArgs),
    /// Print completions for a shell
    #[command(help_template = SHORT, after_help = "Example: luagate completions bash > /etc/bash_completion.d/luagate")]
    Completions {
        /// The shell
        #[arg(value_enum)]
        shell: Shell,
    },
    /// Prints what can replace a word, for the script of a shell
    #[command(hide = true)]
    Complete {
        index: usize,
        #[arg(last = true)]
        words: Vec<OsString>,
    },
    /// Write the man pages into a folder
    #[command(help_template = SHORT, after_help = "Example: luagate man /usr/local/share/man/man1")]
    Man {
        /// An existing folder
        folder: PathBuf,
    },
}

/// The commands by which this program starts itself. They are separate from those for users, since clap needs
/// a third of a start to build all of those.
#[derive(Parser)]
pub enum OwnCommand {
    /// Ends a command if the process that should do it cannot
    Guard,
    /// Executes a command that gets TERM if its parent dies
    Launch {
        #[arg(long)]
        parent: i32,
        #[arg(long)]
        unblock: Vec<Signal>,
        #[arg(required = true, last = true)]
        command: Vec<OsString>,
    },
    /// Renews a permit of acquire
    Keeper {
        /// For those who list the processes
        name: String,
    },
}

#[derive(clap::Args, Clone)]
#[command(help_template = DENSE, override_usage = "luagate run [OPTIONS] [-n LIMIT] NAME... -- COMMAND [ARG]...", after_help = "\
Several names: all or none. A mutex, a semaphore (-n) and a reader-writer lock
of one NAME do not exclude each other. Status: that of COMMAND, signal n (a
shell shows 128+n), 64 usage, 69 server, 75 no permit, 79 lost, 126/127 not run.
Example: luagate run -n 5 -w 2.5s market:account:17 -- ./trade --all")]
pub struct RunArgs {
    #[command(flatten)]
    pub permit: PermitArgs,
    /// TERM this long before KILL [default: lease/4]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub grace: Option<Duration>,
    /// KILL leftovers this long after TERM
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "1s", hide_default_value = true)]
    pub kill_after: Duration,
    /// Keep COMMAND in this process group, as timeout(1)
    #[arg(long)]
    pub foreground: bool,
    #[arg(required = true, last = true, hide = true)]
    pub command: Vec<OsString>,
}

#[derive(clap::Args)]
#[command(help_template = DENSE, override_usage = "luagate acquire [OPTIONS] [-n LIMIT] NAME", after_help = "\
Prints NAME ID FENCE. A keeper process renews the lease until `luagate release`.
Example: luagate acquire --pid $PPID --at-most 1h deploy:shop
Example: luagate acquire --no-keeper --lease 10m deploy:shop")]
pub struct AcquireArgs {
    #[command(flatten)]
    pub permit: PermitArgs,
    /// Release when it ends [default: the parent]
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(i32).range(1..), conflicts_with = "no_keeper")]
    pub pid: Option<i32>,
    /// Release after this time
    #[arg(long, value_name = "DURATION", value_parser = duration, conflicts_with = "no_keeper")]
    pub at_most: Option<Duration>,
    /// Only `luagate refresh` renews it; with --lease
    #[arg(long)]
    pub no_keeper: bool,
}

/// A permit that `luagate acquire` has printed.
#[derive(clap::Args)]
pub struct PrintedArgs {
    /// The name, of any kind
    pub name: String,
    /// The id
    pub id: String,
    /// The fence is not needed; so the whole line of acquire is accepted
    #[arg(hide = true)]
    pub fence: Option<u64>,
    /// Only this kind
    #[arg(long, value_enum)]
    pub kind: Option<KindArg>,
}

#[derive(clap::Args)]
#[command(help_template = SHORT, override_usage = "luagate release [OPTIONS] NAME ID [FENCE]", after_help = "\
Status: 0 released, 1 the ID had nothing, 64 usage, 69 server.
Before a NAME or an ID that begins with `-`, put `--`.
Example: luagate release -- deploy:shop \"$ID\"")]
pub struct ReleaseArgs {
    #[command(flatten)]
    pub printed: PrintedArgs,
}

#[derive(clap::Args)]
#[command(help_template = SHORT, override_usage = "luagate refresh [OPTIONS] NAME ID [FENCE]", after_help = "\
Status: 0 the new lease has begun, 1 the ID holds nothing, 64 usage, 69 server.
Before a NAME or an ID that begins with `-`, put `--`.
Example: luagate refresh --lease 10m -- deploy:shop \"$ID\"")]
pub struct RefreshArgs {
    #[command(flatten)]
    pub printed: PrintedArgs,
    /// The new lease
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "30s")]
    pub lease: Duration,
}

/// Which permits to acquire, and how.
#[derive(clap::Args, Clone)]
pub struct PermitArgs {
    /// Limit of the next NAME, or `stored`; else a mutex
    #[arg(short = 'n', long, value_name = "LIMIT", value_parser = limit, action = ArgAction::Append)]
    pub limit: Vec<Limit>,
    /// Permits of the next NAME to take [default: 1]
    #[arg(short, long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=MOST), action = ArgAction::Append)]
    pub permits: Vec<u32>,
    /// Wait at most this long, also for the server
    #[arg(short, long, value_name = "DURATION", value_parser = duration, conflicts_with = "at_once")]
    pub wait: Option<Duration>,
    /// Do not wait
    #[arg(long = "try", hide = true)]
    pub at_once: bool,
    /// Share a reader-writer lock with other readers
    #[arg(long, conflicts_with_all = ["exclusive", "limit", "permits"])]
    pub shared: bool,
    /// Take a reader-writer lock as its only writer
    #[arg(long, conflicts_with_all = ["limit", "permits"])]
    pub exclusive: bool,
    /// Do not wait if this many wait already
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=MOST))]
    pub max_waiting: Option<u32>,
    /// Come before waiters that came within this time
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "0s", hide_default_value = true)]
    pub head_start: Duration,
    /// Keep the permit in use this long after its grant
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub at_least: Option<Duration>,
    /// Ends this long after a crash
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "30s")]
    pub lease: Duration,
    /// Shown to others, besides host and process id
    #[arg(long, value_name = "TEXT")]
    pub label: Option<String>,
    /// Shown to others: why, in up to 80 bytes
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// The process in the label. `None`: this one.
    #[arg(skip)]
    pub process: Option<u32>,
    /// Status if no permit was obtained
    #[arg(
        short = 'E',
        long = "status",
        alias = "conflict-exit-code",
        value_name = "STATUS",
        default_value = "75"
    )]
    pub conflict_exit_code: u8,
    /// Print nothing while waiting
    #[arg(short, long)]
    pub quiet: bool,
    #[arg(required = true, hide = true)]
    pub names: Vec<String>,
}

/// The limit that a caller declares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    Declared(u32),
    /// The one that `resize` has stored.
    Stored,
}

/// The largest limit.
pub const MOST: i64 = i32::MAX as i64;

#[derive(clap::Args)]
#[command(help_template = SHORT, after_help = "\
In use by 2 of 5: `2/5`; `*`: the limit was set by `luagate resize`.
Example: luagate ls --busy --sort waiting 'market:*'")]
pub struct LsArgs {
    #[command(flatten)]
    pub filter: Filter,
    #[command(flatten)]
    pub order: Order,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(clap::Args, Clone)]
pub struct Filter {
    /// Names as `market:*`; `*` any text, `?` any character [default: all]
    #[arg(value_name = "PATTERN")]
    pub patterns: Vec<String>,
    /// Only this kind
    #[arg(long, value_enum)]
    pub kind: Option<KindArg>,
    /// Only names with holders or waiters
    #[arg(long)]
    pub busy: bool,
}

#[derive(clap::Args, Clone, Copy)]
pub struct Order {
    /// Column to sort by
    #[arg(
        long,
        value_enum,
        default_value = "name",
        hide_possible_values = true,
        value_name = "COLUMN",
        help = "Sort by name, kind, limit, in-use, waiting, oldest or longest"
    )]
    pub sort: Column,
    /// Sort in reverse
    #[arg(short, long)]
    pub reverse: bool,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    Name,
    Kind,
    Limit,
    InUse,
    Waiting,
    Oldest,
    Longest,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shell {
    Bash,
    Zsh,
    Fish,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum KindArg {
    Semaphore,
    Mutex,
    Rwlock,
}

#[derive(clap::Args)]
#[command(help_template = SHORT, after_help = "\
Take a permit away: luagate revoke NAME ID
Example: luagate inspect market:account:17")]
pub struct InspectArgs {
    /// The name, of any kind
    pub name: String,
    /// Only this kind
    #[arg(long, value_enum)]
    pub kind: Option<KindArg>,
    /// List at most this many holders, and as many waiters
    #[arg(long, value_name = "COUNT", default_value = "1000")]
    pub most: u32,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(clap::Args)]
#[command(help_template = SHORT, after_help = "\
Keys: arrows select, Enter opens, x revokes, s sorts, r reverses, / filters, q quits
Example: luagate top --sort waiting 'market:*'")]
pub struct TopArgs {
    #[command(flatten)]
    pub filter: Filter,
    #[command(flatten)]
    pub order: Order,
    /// Time between two readings of the rows on the screen
    #[arg(short, long, value_name = "DURATION", value_parser = duration, default_value = "1s")]
    pub interval: Duration,
    /// Print the table once and end
    #[arg(long)]
    pub once: bool,
    /// With --once: print JSON
    #[arg(long, requires = "once")]
    pub json: bool,
}

#[derive(clap::Args)]
#[command(help_template = SHORT, override_usage = "luagate revoke [OPTIONS] NAME [ID]...", after_help = "\
A command under `luagate run` is ended within 1.5 s. Other programs notice it at
the latest after a third of their lease; only the fence stops their writes until
then. A waiter notices it at once. Before an ID that begins with `-`, put `--`.
Status: 0 taken away, 1 an ID had nothing, 64 usage or not confirmed, 69 server.
Example: luagate revoke market:account:17 host7:4711")]
pub struct RevokeArgs {
    /// The name, of any kind
    pub name: String,
    /// Ids or labels, as inspect shows them, or the beginning of one id
    pub ids: Vec<String>,
    /// All holders
    #[arg(long)]
    pub holders: bool,
    /// All waiters
    #[arg(long)]
    pub waiters: bool,
    /// Only this kind
    #[arg(long, value_enum)]
    pub kind: Option<KindArg>,
    /// Do not ask for confirmation
    #[arg(short, long)]
    pub yes: bool,
}

#[derive(clap::Args)]
#[command(help_template = SHORT, after_help = "\
A higher limit grants to waiters at once. A lower one revokes nothing. The new
limit is in force for all callers, whatever they declare, until --unpin.
Status: 0 changed, 1 not stored or not the expected limit, 64 usage, 69 server.
Example: luagate resize market:account:17 8")]
pub struct ResizeArgs {
    /// The name of a semaphore
    pub name: String,
    /// The new limit
    #[arg(value_parser = clap::value_parser!(u32).range(1..=MOST), required_unless_present = "unpin", conflicts_with = "unpin")]
    pub limit: Option<u32>,
    /// Change it only if this is the limit in force; 0: none is stored
    #[arg(long, value_name = "LIMIT", conflicts_with = "unpin")]
    pub expected: Option<u32>,
    /// Let the limit that callers declare apply again
    #[arg(long)]
    pub unpin: bool,
    /// Create the semaphore if it is not stored
    #[arg(long, conflicts_with = "unpin")]
    pub create: bool,
}

#[derive(clap::Args)]
#[command(help_template = SHORT, after_help = "\
Status: 0, 64 usage, 69 server, 75 not open in time.
Example: luagate latch nightly:2026-11-25 -n 10 wait -w 2h")]
pub struct LatchArgs {
    /// The name of the latch
    pub name: String,
    #[command(subcommand)]
    pub action: LatchAction,
    /// How many must count down until it opens
    #[arg(short = 'n', long, value_name = "COUNT", default_value = "1", value_parser = clap::value_parser!(u32).range(1..=MOST))]
    pub count: u32,
    /// How long the server keeps it after its last use
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "1d")]
    pub life: Duration,
}

#[derive(Subcommand, Clone)]
pub enum LatchAction {
    /// Count down by one, and print what is left
    #[command(help_template = SHORT, after_help = "Example: luagate latch nightly -n 10 down --id \"$(hostname)\"")]
    Down {
        /// Counts once, however often it is used
        #[arg(long)]
        id: Option<String>,
    },
    /// Wait until it is open
    #[command(help_template = SHORT, after_help = "Example: luagate latch nightly -n 10 wait -w 2h")]
    Wait {
        /// Wait at most this long
        #[arg(short, long, value_name = "DURATION", value_parser = duration)]
        wait: Option<Duration>,
    },
    /// Print what is left
    #[command(help_template = SHORT, after_help = "Example: luagate latch nightly show")]
    Show,
    /// Remove it, so that the name can be used again
    #[command(help_template = SHORT, after_help = "Example: luagate latch nightly delete")]
    Delete,
}

#[derive(clap::Args)]
#[command(help_template = SHORT, after_help = "\
Each line begins with `ok`, `warning` or `broken`, and says what to change.
Status: 0 all ok, 1 warnings, 2 broken, 64 usage, 69 server cannot be reached.
Example: luagate doctor --url redis://server/")]
pub struct DoctorArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(clap::Args)]
#[command(help_template = SHORT, after_help = "\
Metrics are at /metrics. A dashboard for Grafana: cli/grafana.json.
Example: luagate export --listen :9187 'market:*'")]
pub struct ExportArgs {
    #[command(flatten)]
    pub filter: Filter,
    /// Address to serve on; :9187: all addresses of this machine
    #[arg(long, value_name = "[HOST]:PORT", value_parser = listen, default_value = "127.0.0.1:9187")]
    pub listen: String,
    /// Names with metrics; the busiest are chosen
    #[arg(long, value_name = "COUNT", default_value = "1000")]
    pub most: usize,
    /// Scrapes within this time get the same reading of the server
    #[arg(short, long, value_name = "DURATION", value_parser = duration, default_value = "1s")]
    pub interval: Duration,
    /// Print the metrics once and end
    #[arg(long)]
    pub once: bool,
}

pub fn limit(text: &str) -> Result<Limit, String> {
    match text.parse() {
        _ if text == "stored" => Ok(Limit::Stored),
        Ok(limit) if (1..=MOST).contains(&i64::from(limit)) => Ok(Limit::Declared(limit)),
        _ => Err(format!("accepted: 1 to {MOST}, or `stored`")),
    }
}

pub fn listen(text: &str) -> Result<String, String> {
    match text.rsplit_once(':').map(|(_, port)| port.parse::<u16>()) {
        Some(Ok(_)) => Ok(text.to_owned()),
        _ => Err("accepted: HOST:PORT, as in `localhost:9187`, or :PORT for all addresses of this machine"
            .to_owned()),
    }
}

pub fn duration(text: &str) -> Result<Duration, String> {
    use TimeUnit::{Day, Hour, MilliSecond, Minute, Second};
    let parser = DurationParser::with_time_units(&[MilliSecond, Second, Minute, Hour, Day]);
    let parsed = parser.parse(text).ok().and_then(|duration| Duration::try_from(duration).ok());
    // The server counts in milliseconds, at most a hundred years.
    match parsed {
        Some(duration) if duration <= Duration::from_secs(36_525 * 86_400) => Ok(duration),
        _ => Err("accepted: a number and ms, s, m, h or d, as in `2.5s`; without a unit: seconds".to_owned()),
    }
}
