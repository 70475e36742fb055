//! The connection to the server, and a server that does not reply.

use super::{NO_REPLY, Scene, Shell, Test, end_of, found, only, output_of, put_program, script, stderr, with_permit};
use crate::support::Server;
use crate::support::proxy::Proxy;
use libtest_mimic::Failed;
use std::time::{Duration, Instant};

pub const TESTS: [Test; 6] = [
    ("a_password_reaches_the_server_and_is_no_argument_of_any_process", password),
    ("reaches_a_server_on_a_unix_socket", unix_socket),
    ("a_server_that_is_down_is_reported_within_the_timeout", down),
    ("a_server_that_does_not_reply_is_reported_within_the_timeout", silent),
    ("a_call_whose_reply_is_lost_is_repeated", lost_reply),
    ("without_a_working_redis_cli_nothing_runs", no_redis_cli),
];

fn password(shell: Shell) -> Result<(), Failed> {
    let server = Server::private_tcp(&["--requirepass", "s3:cr%t/@"]).expect("a server, because its binary was found");
    let mut con = redis::Client::open(format!("redis://:s3%3Acr%25t%2F%40@{}/", server.address()))?.get_connection()?;
    let user = ["SETUSER", "b@tch", "on", ">w0rd", "~*", "&*", "+@all"];
    let _: () = redis::cmd("ACL").arg(&user).query(&mut con)?;
    // A redis-cli that logs its arguments, which every user of the host can list.
    let path = only(&["awk", "cat", "env", "grep", "sed", "setsid", "sh", "sleep", "tr"]);
    let seen = path.path().join("seen");
    let text = format!("echo \"$@\" >>{}; exec {} \"$@\"", seen.display(), found("redis-cli").display());
    put_program(path.path(), "redis-cli", &text);
    for (login, secret) in
        [("default:s3%3acr%25t%2F%40@", "s3"), (":s3%3Acr%25t%2F%40@", "s3"), ("b%40tch:w0rd@", "w0rd")]
    {
        let url = format!("redis://{login}{}/0", server.address());
        let shell = found(shell).to_str().unwrap().to_owned().leak();
        let mut command = with_permit(shell, &url, 1, 60, "echo inside");
        let output = command.env("PATH", path.path()).output()?;
        assert_eq!((&*output.stdout, &*stderr(&output)), (&b"inside\n"[..], ""));
        let seen = std::fs::read_to_string(&seen)?;
        assert!(seen.contains("EVALSHA"), "{seen}");
        assert!(!seen.contains(secret), "{seen}");
    }
    let url = format!("redis://{}/", server.address());
    let mut command = with_permit(shell, &url, 1, 60, "echo inside");
    let output = command.env("REDISCLI_AUTH", "s3:cr%t/@").output()?;
    assert_eq!((&*output.stdout, &*stderr(&output)), (&b"inside\n"[..], ""));
    // Without the password it fails at once.
    let mut child = with_permit(shell, &url, 1, 60, "echo inside").spawn()?;
    let output = output_of(&mut child);
    let says = ["NOAUTH", "unauthenticated"]; // which of the two depends on the version of the server
    let text = stderr(&output);
    assert!(says.iter().any(|word| text.contains(word)), "{text}");
    let expected = (&b""[..], Some(NO_REPLY));
    assert_eq!((&*output.stdout, output.status.code()), expected);
    Ok(())
}

fn unix_socket(shell: Shell) -> Result<(), Failed> {
    let server = Server::private(&[]).expect("a server, because its binary was found");
    let output = with_permit(shell, &server.url, 1, 60, "echo inside").output()?;
    assert_eq!((&*output.stdout, &*stderr(&output)), (&b"inside\n"[..], ""));
    Ok(())
}

/// The longest that one call takes.
const CALL: Duration = Duration::from_secs(2);

/// The additional time that a busy machine may need.
const BUSY: Duration = Duration::from_millis(2_500);

/// Runs it with a timeout of three seconds. It fails with this error in time.
fn gives_up(shell: Shell, url: &str, says: &str) -> Result<(), Failed> {
    let wait = Duration::from_secs(3);
    let began = Instant::now();
    let mut child = with_permit(shell, url, 1, wait.as_secs(), "echo inside").spawn()?;
    let output = output_of(&mut child);
    let took = began.elapsed();
    assert_eq!(output.stdout, b"");
    assert!(stderr(&output).starts_with(says), "{}", stderr(&output));
    assert_eq!(stderr(&output).lines().count(), 1);
    assert_eq!(output.status.code(), Some(NO_REPLY));
    assert!(took < wait + CALL + BUSY, "{took:?}");
    Ok(())
}

fn down(shell: Shell) -> Result<(), Failed> {
    let mut server = crate::server();
    server.kill();
    gives_up(shell, &server.url, "with-permit: Could not connect")
}

fn silent(shell: Shell) -> Result<(), Failed> {
    let mut server = crate::server();
    server.pause();
    gives_up(shell, &server.url, "with-permit: the server did not reply within 2000 ms")
}

fn lost_reply(shell: Shell) -> Result<(), Failed> {
    let scene = Scene::new(shell);
    let proxy = Proxy::new(&scene.server);
    assert!(with_permit(shell, &proxy.url, 1, 60, ":").status()?.success());
    proxy.lose_reply_of_script();
    // The call whose reply was lost has acquired the only permit.
    let mut child = with_permit(shell, &proxy.url, 1, 60, ":").spawn()?;
    assert!(end_of(&mut child).success());
    assert!(proxy.is_done());
    assert_eq!(scene.in_use(), 0);
    Ok(())
}

fn no_redis_cli(shell: Shell) -> Result<(), Failed> {
    let scene = Scene::new(shell);
    let path = only(&["awk", "cat", "env", "grep", "sed", "setsid", "sh", "sleep", "tr"]);
    let shell: Shell = found(shell).to_str().unwrap().to_owned().leak();
    let run = || {
        let arguments = ["batch", "2", "0", "sh", "-c", "echo inside"];
        let mut command = script(shell, &scene.server.url, &arguments);
        command.env("PATH", path.path()).output()
    };
    for says in
        ["redis-cli is missing. Install it (Debian: apt install redis-tools)", "redis-cli: cannot open a library"]
    {
        let output = run()?;
        let expected = format!("with-permit: {says}\n");
        assert_eq!((&*output.stdout, stderr(&output)), (&b""[..], expected));
        assert_eq!(output.status.code(), Some(NO_REPLY));
        let text = "echo redis-cli: cannot open a library >&2; exit 127";
        put_program(path.path(), "redis-cli", text);
    }
    Ok(())
}
