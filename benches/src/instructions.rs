//! How many client instructions an acquire and its release take, counted by callgrind: the count is the same
//! on a busy and on an idle machine. Starting the program does not count, nor does the server's work.

use crate::rounds::median;
use crate::server::Server;
use std::path::Path;
use std::process::{Command, Stdio};

const PAIRS: u32 = 300;
const ROUNDS: usize = 3;

/// By default glibc chooses its copy functions by the processor, so counts would depend on it. This setting
/// uses functions that every processor has.
pub const ONE_FOR_ALL: &str = "glibc.cpu.hwcaps=-AVX512F,-AVX512VL,-AVX2,-AVX2_Usable,-AVX,-AVX_Usable,-AVX_Fast_Unaligned_Load,-ERMS,-FSRM";

/// Whether valgrind is installed and runs.
pub fn can_count() -> bool {
    let mut valgrind = Command::new("valgrind");
    valgrind.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    valgrind.status().is_ok_and(|status| status.success())
}

/// The instructions of `program` (`src/bin/pairs.rs`) for this number of pairs, including start and end.
/// `by`: its last argument.
fn count(program: &Path, server: &Server, pairs: u32, by: &str) -> f64 {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("counts");
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--quiet"])
        .arg(format!("--callgrind-out-file={}", file.display()))
        .arg(program)
        .args([&server.url, &server.prefix, &pairs.to_string(), by])
        .env("GLIBC_TUNABLES", ONE_FOR_ALL)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "callgrind: {errors}");
    total(&file).unwrap_or_else(|| panic!("callgrind counted nothing: {errors}"))
}

/// The instructions that callgrind wrote to this file.
pub fn total(file: &Path) -> Option<f64> {
    let counts = std::fs::read_to_string(file).unwrap();
    let mut lines = counts.lines();
    let total = lines.find_map(|line| line.strip_prefix("totals: "));
    total?.trim().parse().ok()
}

/// The instructions of one pair, by a thread, by a task, or sent raw by a task.
pub fn a_pair(program: &Path, server: &Server, by: &str) -> f64 {
    let differences = (0..ROUNDS).map(|_| {
        let once = count(program, server, PAIRS, by);
        (count(program, server, 2 * PAIRS, by) - once) / f64::from(PAIRS)
    });
    median(differences)
}

/// The compiler's version and its target.
pub fn compiler() -> (String, String) {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).arg("-vV").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let field = |name: &str| {
        let value = text.lines().find_map(|line| line.strip_prefix(name));
        value.unwrap_or("unknown").to_owned()
    };
    (field("release: "), field("host: "))
}
