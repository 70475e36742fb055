//! probe
use luagate_proof::checking::World;
use luagate_proof::scripts::Scripts;
use luagate_proof::situation::{Setting, Want};
use std::time::Duration;

#[test]
fn probe() {
    let env = |name: &str, or: u64| {
        std::env::var(name)
            .ok()
            .map_or(or, |text| text.parse().unwrap())
    };
    let lease = env("LEASE", 2);
    let wait = env("WAIT", 3);
    let mut wants = vec![
        Want {
            permits: 1,
            lease,
            wait: 0,
            inbox: true,
        },
        Want {
            permits: 1,
            lease,
            wait,
            inbox: true,
        },
    ];
    if env("TWO", 0) > 0 {
        wants.push(Want {
            permits: 2,
            lease,
            wait,
            inbox: true,
        });
    }
    let setting = Setting {
        name: "probe",
        clients: env("CLIENTS", 3) as usize,
        limit: env("LIMIT", 1) as u32,
        wants,
        asks: env("ASKS", 1) as usize,
        renewals: env("RENEWALS", 1) as u8,
        faults: env("FAULTS", 1) as u8,
        delay: env("DELAY", 2),
        exact: env("EXACT", 0) > 0,
    };
    let world = World::new(&setting, &Scripts::read()).unwrap();
    let explored = world.explore(
        env("THREADS", 2) as usize,
        Some(Duration::from_secs(env("TIME", 60))),
    );
    println!(
        "{} unique, {} generated, depth {}, {:.1?}, missing {:?}",
        explored.unique, explored.generated, explored.depth, explored.took, explored.missing
    );
    if let Some(failure) = explored.failure {
        println!("{}", failure.story);
    }
}
