//! Runs the fuzz targets with libFuzzer, which finds new inputs by the code that they reach. It works with
//! the stable toolchain.
//!
//! This program compiles itself again with `--cfg fuzzing` and counters of the covered code, and runs that.
//! `./dev prove` does so for a minute each. The inputs that it has found stay in the folder of the build, and
//! the next run begins with them.

#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    static RUN: std::sync::LazyLock<fn(&[u8])> = std::sync::LazyLock::new(|| {
        let name = std::env::var("LUAGATE_FUZZ_TARGET").unwrap_or_default();
        luagate_fuzz::target(&name).unwrap_or_else(|| panic!("no target {name:?}")).run
    });
    RUN(data)
});

#[cfg(not(fuzzing))]
mod driver;

#[cfg(not(fuzzing))]
fn main() -> std::process::ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match driver::carry_out(&arguments) {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("fuzz: {message}");
            std::process::ExitCode::FAILURE
        }
    }
}
