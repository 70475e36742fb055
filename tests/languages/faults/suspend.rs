//! The client's machine is suspended: its monotonic clock stops, and the server's time goes on. And the
//! client's wall clock makes a step, which a client may take for this.

use super::client::Client;
use super::driver::Driver;
use super::scene::{open, server};
use super::support::{clock, eventually, skip_since};
use libtest_mimic::Failed;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// A process with this library has a monotonic clock that is behind by the number in a file. Its deadlines by
/// that clock move as well. A deadline before the year 1990 is none of the wall clock.
const SOURCE: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static volatile long *behind;

__attribute__((constructor)) static void start(void) {
    int file = open(getenv("STOPPED_CLOCK"), O_RDONLY);
    void *shared = mmap(0, sizeof(long), PROT_READ, MAP_SHARED, file, 0);
    if (shared != MAP_FAILED) behind = shared;
    close(file);
}

static struct timespec moved(struct timespec at, long by) {
    at.tv_sec += by / 1000000000;
    at.tv_nsec += by % 1000000000;
    if (at.tv_nsec < 0) { at.tv_sec--; at.tv_nsec += 1000000000; }
    if (at.tv_nsec >= 1000000000) { at.tv_sec++; at.tv_nsec -= 1000000000; }
    return at;
}

int clock_gettime(clockid_t clock, struct timespec *at) {
    int result = syscall(SYS_clock_gettime, clock, at);
    if (clock == CLOCK_MONOTONIC || clock == CLOCK_MONOTONIC_RAW || clock == CLOCK_MONOTONIC_COARSE)
        *at = moved(*at, behind ? -*behind : 0);
    return result;
}

static struct timespec real(const struct timespec *end) {
    return end->tv_sec < 631152000 && behind ? moved(*end, *behind) : *end;
}

int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex, const struct timespec *end) {
    static int (*system)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
    if (!system) system = dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2"); // the oldest one is another
    if (!system) system = dlsym(RTLD_NEXT, "pthread_cond_timedwait");
    struct timespec at = real(end);
    return system(condition, mutex, &at);
}

int pthread_cond_clockwait(pthread_cond_t *condition, pthread_mutex_t *mutex, clockid_t clock, const struct timespec *end) {
    static int (*system)(pthread_cond_t *, pthread_mutex_t *, clockid_t, const struct timespec *);
    if (!system) system = dlsym(RTLD_NEXT, "pthread_cond_clockwait");
    struct timespec at = real(end);
    return system(condition, mutex, clock, &at);
}

int sem_clockwait(sem_t *semaphore, clockid_t clock, const struct timespec *end) {
    static int (*system)(sem_t *, clockid_t, const struct timespec *);
    if (!system) system = dlsym(RTLD_NEXT, "sem_clockwait");
    struct timespec at = real(end);
    return system(semaphore, clock, &at);
}
"#;

/// Gives a process that will be started a clock that `set_behind` moves. An error: why it is not possible.
fn give_clock(command: &mut Command, folder: &Path) -> Result<(), &'static str> {
    if !cfg!(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64")) {
        return Err("needs Linux with glibc");
    }
    let (source, library) = (folder.join("clock.c"), folder.join("clock.so"));
    fs::write(&source, SOURCE).unwrap();
    set_behind(folder, Duration::ZERO);
    let mut compiler = Command::new("cc");
    let compiled =
        compiler.args(["-shared", "-fPIC", "-w", "-o"]).args([&library, &source]).arg("-ldl").status();
    let Ok(status) = compiled else { return Err("needs a C compiler (cc)") };
    assert!(status.success(), "the clock does not compile");
    command.env("LD_PRELOAD", library).env("STOPPED_CLOCK", folder.join("behind"));
    Ok(())
}

fn set_behind(folder: &Path, time: Duration) {
    fs::write(folder.join("behind"), (time.as_nanos() as u64).to_ne_bytes()).unwrap();
}

/// The program knows at once that its permits are lost, although its monotonic clock did not move.
pub fn suspended(client: &Client) -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let mut command = client.command();
    if let Err(why) = give_clock(&mut command, folder.path()) {
        skip_since(why);
        return Ok(());
    }
    let server = server(&[]);
    let gate = server.gate();
    let mut driver = Driver::spawn(command);
    driver.call(open(&server.url, &server.prefix)).expect("done");
    for (name, lease) in [("fixed", "3000"), ("renewed", "3000+")] {
        driver
            .call(format!("acquire gate=g permit={name} timeout=20000 name={name} lease={lease}"))
            .expect("granted");
    }
    driver.pause();
    let began = Instant::now();
    let others = ["fixed", "renewed"].map(|name| gate.semaphore(name, 1));
    let _held = others.map(|other| other.acquire_timeout(Duration::from_secs(10)).unwrap());
    set_behind(folder.path(), began.elapsed());
    driver.resume();
    for name in ["fixed", "renewed"] {
        driver.call(format!("state permit={name}")).expect("lost");
        driver.call(format!("await_lost permit={name} timeout=10000")).expect("lost");
    }
    Ok(())
}

/// The wall clock of the client makes a step of an hour forward and back: a renewed permit stays held.
pub fn wall_clock_steps(client: &Client) -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let mut command = client.command();
    if let Err(why) = clock::give_own(&mut command, folder.path()) {
        skip_since(&why);
        return Ok(());
    }
    let server = server(&[]);
    let mut driver = Driver::spawn(command);
    driver.call(open(&server.url, &server.prefix)).expect("done");
    driver.call("acquire gate=g permit=p timeout=20000 name=line lease=3000+").expect("granted");
    for ahead in [3_600, 0] {
        clock::set(folder.path(), ahead);
        driver.call("await_lost permit=p timeout=1500").expect("held");
        eventually("the server has confirmed it", || {
            (driver.call("state permit=p").word == "held").then_some(())
        });
    }
    assert_eq!(server.gate().semaphore("line", 1).inspect()?.in_use, 1);
    Ok(())
}
