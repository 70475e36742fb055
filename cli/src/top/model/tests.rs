//! The effects of keys and reports.

use super::*;
use crate::args::Column;
use crate::top::keys::Action;
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use luagate::admin::Kind;

const HEIGHT: usize = 3;

fn name(text: &str) -> Name {
    Name { name: text.to_owned(), kind: Kind::Mutex }
}

/// A model that has read these names, each with this number of waiters.
fn model(busy: bool, waiting: &[(&str, u64)]) -> Model {
    let filter = Filter { patterns: Vec::new(), kind: None, busy };
    let mut model = Model::new(String::new(), &filter, Order { sort: Column::Name, reverse: false });
    take(&mut model, Report::Found(waiting.iter().map(|(text, _)| name(text)).collect()));
    for (text, waiting) in waiting {
        read(&mut model, text, *waiting);
    }
    model
}

fn take(model: &mut Model, report: Report) {
    model.take(report, SystemTime::UNIX_EPOCH);
    model.arrange(HEIGHT);
}

fn read(model: &mut Model, text: &str, waiting: u64) {
    take(model, Report::Read(name(text), Some(Sample { waiting, ..unread(name(text)) })));
}

fn press(model: &mut Model, codes: &[KeyCode]) -> Action {
    let mut last = Action::Nothing;
    for code in codes {
        last = model.press(KeyEvent::new(*code, KeyModifiers::NONE));
        model.arrange(HEIGHT);
    }
    last
}

fn keys(model: &mut Model, text: &str) -> Action {
    press(model, &text.chars().map(KeyCode::Char).collect::<Vec<_>>())
}

fn shown(model: &Model) -> Vec<&str> {
    model.shown.iter().map(|name| name.name.as_str()).collect()
}

fn selected(model: &Model) -> &str {
    &model.shown[model.scroll.at].name
}

fn detail(ids: &[(&str, bool)]) -> Detail {
    let owners = ids.iter().map(|(id, can_be_revoked)| Owner {
        id: (*id).to_owned(),
        cells: Vec::new(),
        description: String::new(),
        can_be_revoked: *can_be_revoked,
    });
    Detail { sample: Some(unread(name("a"))), owners: owners.collect(), more: 0 }
}

#[test]
fn names_that_vanished_disappear_and_late_readings_do_not_bring_them_back() {
    let mut model = model(false, &[("a", 0), ("b", 0), ("c", 0)]);
    take(&mut model, Report::Read(name("b"), None));
    assert_eq!(shown(&model), ["a", "c"]);
    take(&mut model, Report::Stored(vec![name("c"), name("d")]));
    assert_eq!(shown(&model), ["c", "d"]);
    read(&mut model, "a", 1);
    assert_eq!(shown(&model), ["c", "d"]);
    assert_eq!(model.unread, 1, "d");
}

#[test]
fn busy_hides_names_that_nobody_uses() {
    let mut model = model(true, &[("a", 0), ("b", 2)]);
    assert_eq!((shown(&model), model.counts()), (vec!["b"], (1, 2)));
    read(&mut model, "a", 1);
    assert_eq!(shown(&model), ["a", "b"]);
}

#[test]
fn s_sorts_by_the_next_column_and_r_reverses() {
    let mut model = model(false, &[("a", 1), ("b", 3), ("c", 2)]);
    let mut columns = vec![model.order.sort];
    for _ in 0..7 {
        keys(&mut model, "s");
        columns.push(model.order.sort);
    }
    use Column::{InUse, Kind, Limit, Longest, Name, Oldest, Waiting};
    assert_eq!(columns, [Name, Kind, Limit, InUse, Waiting, Oldest, Longest, Name]);
    keys(&mut model, "ssss");
    assert_eq!(shown(&model), ["b", "c", "a"]);
    keys(&mut model, "r");
    assert_eq!(shown(&model), ["a", "c", "b"]);
    read(&mut model, "b", 0);
    assert_eq!(shown(&model), ["b", "a", "c"]);
}

#[test]
fn the_selection_follows_its_name_but_stays_on_the_first_row() {
    let mut model = model(false, &[("b", 0), ("c", 0)]);
    take(&mut model, Report::Found(vec![name("a")]));
    assert_eq!(selected(&model), "a");
    press(&mut model, &[KeyCode::Down]);
    take(&mut model, Report::Found(vec![name("a2")]));
    assert_eq!(selected(&model), "b");
    take(&mut model, Report::Read(name("b"), None));
    assert_eq!(selected(&model), "c", "the row at its place");
    press(&mut model, &[KeyCode::Home]);
    assert_eq!(selected(&model), "a");
    press(&mut model, &[KeyCode::End, KeyCode::Char('k')]);
    assert_eq!(selected(&model), "a2");
}

#[test]
fn a_filter_is_a_pattern_or_a_part_of_a_name() {
    let mut model = model(false, &[("market:1", 0), ("market:2", 0), ("my market", 0), ("other", 0)]);
    let filtered = |model: &mut Model, text: &str| {
        keys(model, "/");
        press(model, &[KeyCode::Backspace; 20]);
        keys(model, text);
        press(model, &[KeyCode::Enter]);
        shown(model).len()
    };
    assert_eq!(filtered(&mut model, "market:*"), 2);
    assert_eq!(filtered(&mut model, "market"), 3);
    assert_eq!(filtered(&mut model, "?????"), 1);
    assert_eq!(filtered(&mut model, ""), 4);
    assert_eq!(filtered(&mut model, "q"), 0, "letters are typed, not keys");
    press(&mut model, &[KeyCode::Char('/'), KeyCode::Char('x'), KeyCode::Esc]);
    assert_eq!((shown(&model).len(), model.opened.is_some()), (4, false));
    keys(&mut model, "/other");
    assert_eq!(shown(&model).len(), 4, "not applied before Enter");
    press(&mut model, &[KeyCode::Enter]);
    assert_eq!(shown(&model), ["other"]);
    press(&mut model, &[KeyCode::Esc]);
    assert_eq!(shown(&model).len(), 4);
}

#[test]
fn only_y_confirms_a_revocation() {
    let mut model = model(false, &[("a", 0)]);
    assert_eq!(keys(&mut model, "xy"), Action::Nothing, "x opens the name first");
    assert_eq!(keys(&mut model, "xy"), Action::Nothing, "nothing was read yet");
    take(&mut model, Report::Opened(name("a"), detail(&[("one", true), ("two", true), ("three", false)])));
    for refusal in [KeyCode::Char('n'), KeyCode::Esc] {
        assert_eq!(press(&mut model, &[KeyCode::Char('x'), refusal, KeyCode::Char('y')]), Action::Nothing);
        assert!(model.opened.is_some(), "Esc only answers the question");
    }
    keys(&mut model, "jx");
    take(&mut model, Report::Opened(name("a"), detail(&[("zero", true), ("one", true), ("two", true)])));
    let other = [KeyCode::Enter, KeyCode::Char('q'), KeyCode::Char('j'), KeyCode::Char(' ')];
    assert_eq!(press(&mut model, &other), Action::Nothing);
    let revoke = Action::Revoke { name: name("a"), id: "two".to_owned() };
    assert_eq!(keys(&mut model, "y"), revoke, "the one that was asked about");
    assert_eq!(keys(&mut model, "y"), Action::Nothing, "once");
}

#[test]
fn permits_that_are_cooling_down_cannot_be_revoked() {
    let mut model = model(false, &[("a", 0)]);
    press(&mut model, &[KeyCode::Enter]);
    take(&mut model, Report::Opened(name("a"), detail(&[("three", false)])));
    assert_eq!(keys(&mut model, "xy"), Action::Nothing);
    assert_eq!(model.question, None);
}

#[test]
fn the_selected_holder_stays_selected_while_others_come_and_go() {
    let mut model = model(false, &[("a", 0)]);
    press(&mut model, &[KeyCode::Enter]);
    let now = |model: &Model| model.opened.as_ref().unwrap().selected().unwrap().id.clone();
    take(&mut model, Report::Opened(name("a"), detail(&[("one", true), ("two", true)])));
    press(&mut model, &[KeyCode::Down]);
    take(&mut model, Report::Opened(name("a"), detail(&[("zero", true), ("one", true), ("two", true)])));
    assert_eq!(now(&model), "two");
    take(&mut model, Report::Opened(name("b"), detail(&[("other", true)])));
    assert_eq!(now(&model), "two", "a late reading of another name");
    take(&mut model, Report::Opened(name("a"), detail(&[("zero", true)])));
    assert_eq!(now(&model), "zero");
    press(&mut model, &[KeyCode::Esc]);
    assert!(model.opened.is_none());
}

#[test]
fn q_and_ctrl_c_end_it() {
    let mut model = model(false, &[("a", 0)]);
    assert_eq!(keys(&mut model, "q"), Action::Quit);
    let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(keys(&mut model, "/q"), Action::Nothing, "typed");
    assert_eq!(model.press(interrupt), Action::Quit);
}
