//! `luagate doctor`: checks each server, and says what to change.

mod checks;
mod permissions;
mod report;
mod server;
mod trial;

use crate::address::ServerArgs;
use crate::args::DoctorArgs;
use crate::ended::Ended;
use luagate::admin::{self, Master};
use luagate::errors::FailureKind;
use luagate::{Gate, Warning};
use report::{Grade, Judgement, Report, broken, warning};
use trial::Trial;

pub fn doctor(server: &ServerArgs, args: &DoctorArgs) -> Result<u8, Ended> {
    let mut report = Report::default();
    let prefix = server.prefix();
    match server.builder()?.open() {
        Ok(gate) => {
            for master in admin::masters(&gate).map_err(Ended::of)? {
                check(&gate, &master, &prefix, &mut report);
            }
            add_warnings(&gate, &mut report);
        }
        Err(error) => match server::kind(&error) {
            // The server answers, but refuses what opening a gate needs.
            Some(FailureKind::Permission) => {
                let advice = "No program can use luagate. Grant the permission to the user";
                report.add("", "permissions", broken(error.to_string(), advice));
            }
            Some(FailureKind::Other) => {
                let advice = "No program can use luagate. Correct the cause that the text names";
                report.add("", "server", broken(error.to_string(), advice));
            }
            _ => return Err(server.at(Ended::of(error))),
        },
    }
    report.print(args.json)?;
    Ok(report.grade().status())
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
            add("server", broken(error, "Names on this server cannot be used. Start it, or correct the network"));
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

/// The warnings of the library that no check has found.
fn add_warnings(gate: &Gate, report: &mut Report) {
    for found in gate.warnings() {
        let server = match &found {
            Warning::Evicts { server, .. } => server.clone(),
            _ => String::new(),
        };
        if !report.has_complaint(&server, "eviction") {
            report.add(&server, "settings", warning(found.to_string(), "The library gives this warning too"));
        }
    }
}
