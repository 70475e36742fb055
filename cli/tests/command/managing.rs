//! `revoke`, `resize` and `latch`.

use super::terminal::Terminal;
use super::tool::{Run, Text, luagate, waits, words};
use crate::support::Server;
use luagate::Permit;

#[test]
fn a_holder_is_found_by_the_beginning_of_its_id_and_loses_its_permit() {
    let server = Server::any();
    let semaphore = server.gate().semaphore("a", 5);
    let permits = ["host1:7", "host2:8"].map(|label| semaphore.clone().label(label).acquire().unwrap());
    let refused = luagate(&server).args(words("revoke a host1")).done();
    assert_eq!(refused.code(), 64, "{refused:?}");
    assert!(refused.err().contains("--yes"), "{refused:?}");
    assert_eq!(semaphore.inspect().unwrap().in_use, 2);
    let revoked = luagate(&server).args(words("revoke a host1:7 --yes")).done();
    assert_eq!(revoked.code(), 0, "{revoked:?}");
    assert_eq!(revoked.out(), format!("revoked the permit of {} for semaphore a\n", permits[0].id()));
    permits[0].refresh().unwrap_err();
    permits[1].refresh().unwrap();
    let again = luagate(&server).args(words("revoke a host1:7 host2 --yes")).done();
    assert_eq!(again.code(), 1, "one of them has nothing: {again:?}");
    assert_eq!(again.err(), "luagate: host1:7 neither holds nor waits for a\n");
    permits[1].refresh().unwrap_err();
}

#[test]
fn on_a_terminal_revoke_shows_what_it_found_and_asks() {
    let server = Server::any();
    let semaphore = server.gate().semaphore("a", 5);
    let permit = semaphore.clone().label("host:7").acquire().unwrap();
    for (answer, status, in_use) in [("n\n", 64, 1), ("\n", 64, 1), ("y\n", 0, 0)] {
        let mut terminal = Terminal::new(10, 120);
        let mut revoke = terminal.start(&server, env!("CARGO_BIN_EXE_luagate"), &["revoke", "a", "host:7"]);
        let text = terminal.shows("the question", |text| text.contains("Revoke 1? [y/N]"));
        assert!(text.contains(&format!("semaphore a: holder {}, 1 permit(s) for ", permit.id())), "{text}");
        terminal.type_in(answer);
        assert_eq!(revoke.wait().unwrap().exit_code(), status, "{answer:?}");
        assert_eq!(semaphore.inspect().unwrap().in_use, in_use, "{answer:?}");
    }
}

#[test]
fn a_text_that_means_several_ids_revokes_nothing() {
    let server = Server::any();
    let semaphore = server.gate().semaphore("a", 5);
    let permits = ["host:7", "host:71", "host:72", "host:72"]
        .map(|label| semaphore.clone().label(label).acquire().unwrap());
    let ambiguous = luagate(&server).args(words("revoke a host:7 host --yes")).done();
    assert_eq!(ambiguous.code(), 64, "{ambiguous:?}");
    assert!(ambiguous.err().contains("host: 4 ids begin with it"), "{ambiguous:?}");
    assert_eq!(semaphore.inspect().unwrap().in_use, 4);
    // A label means all its ids, and no id of a longer label.
    assert_eq!(luagate(&server).args(words("revoke a host:7 --yes")).done().code(), 0);
    assert_eq!(permits.each_ref().map(|permit| permit.refresh().is_ok()), [false, true, true, true]);
    assert_eq!(luagate(&server).args(words("revoke a host:72 --yes")).done().code(), 0);
    assert_eq!(permits.each_ref().map(|permit| permit.refresh().is_ok()), [false, true, false, false]);
    let id = &permits[1].id()[..20];
    assert_eq!(luagate(&server).args(["revoke", "a", id, "--yes"]).done().code(), 0);
    permits[1].refresh().unwrap_err();
}

#[test]
fn all_holders_or_all_waiters_are_revoked_of_the_chosen_kind() {
    let server = Server::any();
    let gate = server.gate();
    let semaphore = gate.semaphore("a", 1);
    let held = semaphore.acquire().unwrap();
    let mutex = gate.mutex("a").lock().unwrap();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| semaphore.acquire().map(Permit::release));
        waits(&semaphore, 1);
        let revoked = luagate(&server).args(words("revoke a --waiters -y")).done();
        assert_eq!(revoked.code(), 0, "{revoked:?}");
        let error = waiter.join().unwrap().unwrap_err();
        assert!(matches!(error, luagate::errors::AcquireError::Revoked(_)), "{error:?}");
    });
    held.refresh().unwrap();
    assert_eq!(luagate(&server).args(words("revoke a --holders -y --kind semaphore")).done().code(), 0);
    held.refresh().unwrap_err();
    let nobody = luagate(&server).args(words("revoke a --holders -y --kind semaphore")).done();
    assert_eq!(
        (nobody.code(), nobody.err().contains("nobody holds or waits for a as asked")),
        (1, true),
        "{nobody:?}"
    );
    mutex.refresh().unwrap();
    mutex.release().unwrap();
}

#[test]
fn resize_changes_the_limit_for_all_callers() {
    let server = Server::any();
    let semaphore = server.gate().semaphore("a", 1);
    let permit = semaphore.acquire().unwrap();
    let resized = luagate(&server).args(words("resize a 3")).done();
    assert_eq!((resized.code(), resized.out()), (0, "a: limit 3, before 1; in use 1\n".to_owned()));
    semaphore.try_acquire_many(2).unwrap().release().unwrap();
    let unexpected = luagate(&server).args(words("resize a 4 --expected 2")).done();
    assert_eq!(
        (unexpected.code(), unexpected.err()),
        (1, "luagate: a: the limit in force is 3. Nothing was changed\n".to_owned())
    );
    assert_eq!(luagate(&server).args(words("resize a 4 --expected 3")).done().code(), 0);
    permit.release().unwrap();
    assert!(semaphore.inspect().unwrap().pinned);
    assert_eq!(luagate(&server).args(words("resize a --unpin")).done().code(), 0);
    assert_eq!(semaphore.inspect().unwrap().limit, None);
}

#[test]
fn only_a_semaphore_that_is_stored_gets_another_limit() {
    let server = Server::any();
    let resize = |arguments: &str| luagate(&server).arg("resize").args(words(arguments)).done();
    for arguments in ["nothing 3", "nothing 3 --expected 0", "nothing 3 --expected 5", "nothing --unpin"] {
        let refused = resize(arguments);
        assert_eq!((refused.code(), refused.out()), (1, String::new()), "{arguments}");
        let expected = "luagate: nothing: no semaphore with this name is stored. Check it with `luagate ls`, or --create";
        assert!(refused.err().starts_with(expected), "{arguments}: {refused:?}");
    }
    let gate = server.gate();
    let locks = (gate.mutex("m").lock().unwrap(), gate.rwlock("rw").read().unwrap());
    for (arguments, kind) in
        [("m 3", "m is a mutex"), ("m --unpin", "m is a mutex"), ("rw 3", "rw is a rwlock")]
    {
        let refused = resize(arguments);
        assert_eq!(refused.code(), 1, "{refused:?}");
        assert!(
            refused.err().starts_with(&format!("luagate: {kind}, whose limit cannot be changed.")),
            "{refused:?}"
        );
    }
    assert_eq!(server.all_keys().iter().filter(|key| key.contains("semaphore")).count(), 0);
    drop(locks);
    let created = resize("nothing 3 --create --expected 0");
    assert_eq!((created.code(), created.out()), (0, "nothing: limit 3, before none; in use 0\n".to_owned()));
    assert_eq!(resize("nothing 4 --create --expected 0").code(), 1);
    assert_eq!(resize("nothing 4").code(), 0);
    assert_eq!(resize("m 3 --create").code(), 0);
    assert_eq!(resize("nothing --unpin").code(), 0);
    let permit = gate.semaphore("a", 5).acquire().unwrap();
    let refused = resize("a --unpin");
    assert_eq!(refused.err(), "luagate: a: its limit was not set by `resize`. Nothing was changed\n");
    assert_eq!(refused.code(), 1);
    drop(permit);
}

#[test]
fn a_latch_opens_after_all_have_counted_down() {
    let server = Server::any();
    let latch =
        |arguments: &str| luagate(&server).args(words("latch nightly -n 2")).args(words(arguments)).done();
    assert_eq!(latch("show").out(), "2\n");
    assert_eq!(latch("down --id one").out(), "1\n");
    assert_eq!(latch("down --id one").out(), "1\n", "an id counts once");
    let closed = latch("wait -w 50ms");
    assert_eq!(closed.code(), 75, "{closed:?}");
    let waiter = luagate(&server).args(words("latch nightly -n 2 wait")).started();
    assert_eq!(latch("down").out(), "0\n");
    assert_eq!(waiter.output().code(), 0);
    assert_eq!(latch("wait").code(), 0);
    assert_eq!(latch("delete").code(), 0);
    assert_eq!(latch("show").out(), "2\n");
}
