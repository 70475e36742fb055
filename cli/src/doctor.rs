//! `luagate doctor`: checks each server, and says what to change.

pub mod checks;
mod permissions;
mod report;
mod server;
mod trial;

use crate::address::ServerArgs;
use crate::args::DoctorArgs;
use crate::ended::Ended;
use crate::words;
use luagate::Gate;
use luagate::admin::{self, Master};
use luagate::errors::FailureKind;
use report::{Grade, Judgement, Report, broken, warning};
use trial::Trial;

pub fn doctor(server: &ServerArgs, args: &DoctorArgs) -> Result<u8, Ended> {
    let mut report = Report::default();
    let ended = check_all(server, &mut report).err();
    if let Some(Ended { message: Some(message), .. }) = &ended
        && args.json
    {
        let advice = "Nothing more was checked. Start the server, or correct its address or the network";
        report.add("", "server", broken(message, advice));
    }
    report.print(args.json)?;
    ended.map_or_else(|| Ok(report.grade().status()), Err)
}

/// Runs all checks of all servers. An error if the server cannot be reached.
fn check_all(server: &ServerArgs, report: &mut Report) -> Result<(), Ended> {
    let prefix = server.prefix();
    match server.builder()?.open() {
        Ok(gate) => {
            for master in admin::masters(&gate).map_err(Ended::of)? {
                check(&gate, &master, &prefix, report);
            }
        }
        Err(error) => match server::kind(&error) {
            // The server answers, but refuses what opening a gate needs.
            Some(FailureKind::Permission) => {
                let advice = "No program can use luagate. Grant the permission to the user";
                report.add("", "permissions", broken(words::of(error), advice));
            }
            Some(FailureKind::Other | FailureKind::NotReady) => {
                let advice = "No program can use luagate. Correct the cause that the text names";
                report.add("", "server", broken(words::of(error), advice));
            }
            _ => return Err(server.at(Ended::of(error))),
        },
    }
    Ok(())
}

/// Runs all checks of one server.
fn check(gate: &Gate, master: &Master, prefix: &str, report: &mut Report) {
    let address = master.address();
    let mut add = |check, judgement: Judgement| {
        let grade = judgement.grade;
        report.add(&address, check, judgement);
        grade
    };
    let mut is_cluster = false;
    match server::info(master) {
        Ok(info) => {
            is_cluster = info.is_cluster();
            let setting = |name| server::setting(master, name);
            let (save, fsync) = (setting("save"), setting("appendfsync"));
            add("version", checks::version(&info));
            add("eviction", checks::eviction(&info));
            add("memory", checks::memory(&info));
            add("persistence", checks::persistence(&info, save.as_deref(), fsync.as_deref()));
            add("replication", checks::replication(&info));
        }
        Err((error, true)) => {
            add(
                "server",
                broken(error, "Names on this server cannot be used. Start it, or correct the network"),
            );
            return;
        }
        Err((error, false)) => {
            let advice = "Version, eviction, memory, persistence and replication were not checked. \
                          Permit `+info`, or check them on the server";
            add("info", warning(format!("the server does not answer INFO: {error}"), advice));
        }
    }
    let clock = server::clock_difference(master).map(checks::clock);
    add("clock", clock.unwrap_or_else(not_measured));
    match Trial::new(gate, master, prefix) {
        Ok(trial) => {
            let permissions = server::Permissions { master, prefix, key: trial.key(), is_cluster };
            for judgement in permissions.check() {
                add("permissions", judgement);
            }
            if add("scripts", trial.scripts()) < Grade::Broken {
                add("messages", trial.messages());
            }
        }
        Err(error) => {
            add("scripts", broken(error, "Acquiring was not tested. Check the slots of the cluster"));
        }
    }
    let latency = server::round_trips(master).map(checks::latency);
    add("latency", latency.unwrap_or_else(not_measured));
}

fn not_measured(error: String) -> Judgement {
    warning(error, "This was not measured. Correct the cause that the text names")
}
