//! The screen as text.

use super::*;
use crate::args::{Filter, Order};
use crate::sample::Sample;
use crate::top::detail::{Detail, Owner};
use crate::top::model::Report;
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use luagate::admin::{Kind, Name};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use std::time::Duration;

fn at(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(14 * 3_600 + 3 * 60 + seconds)
}

fn name(text: &str) -> Name {
    Name { name: text.to_owned(), kind: Kind::Semaphore }
}

fn sample(text: &str, in_use: u32, waiting: u64) -> Sample {
    let time = |count: u64| (count > 0).then(|| Duration::from_secs(60 * count + 5));
    Sample {
        name: name(text),
        limit: Some(5),
        pinned: waiting > 0,
        in_use,
        holders: in_use.into(),
        waiting,
        oldest: time(in_use.into()),
        longest: time(waiting),
        labels: (0..in_use).map(|number| format!("web{number}")).collect(),
    }
}

fn model() -> Model {
    let filter = Filter { patterns: Vec::new(), kind: None, busy: false };
    let mut model = Model::new(
        "server s:6379, prefix p".to_owned(),
        &filter,
        Order { sort: Column::Name, reverse: false },
    );
    model.take(Report::Stored(["a", "market:1", "market:2"].map(name).to_vec()), at(0));
    for sample in [sample("market:1", 2, 0), sample("market:2", 1, 3)] {
        model.take(Report::Read(sample.name.clone(), Some(sample)), at(1));
    }
    model
}

fn press(model: &mut Model, keys: &str) {
    for key in keys.chars() {
        let code = match key {
            '\n' => KeyCode::Enter,
            key => KeyCode::Char(key),
        };
        model.press(KeyEvent::new(code, KeyModifiers::NONE));
    }
}

/// The lines of a screen of this size, without spaces at their ends.
fn screen(model: &mut Model, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    model.arrange(rows(height, model.opened.is_some()));
    terminal.draw(|frame| draw(frame, model)).unwrap();
    let buffer = terminal.backend().buffer();
    let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
    (0..height).map(line).collect()
}

#[test]
fn the_list_shows_the_columns_of_ls() {
    let mut model = model();
    let expected = [
        "3 of 3 names, sort name, 1 not read yet, server s:6379, prefix p",
        "last reading 14:03:01 UTC",
        "  NAME      KIND       IN USE  WAITING  OLDEST  LONGEST WAIT  HELD BY",
        "> a         semaphore",
        "  market:1  semaphore  2/5     0        2m05s   -             web0, web1",
        "  market:2  semaphore  1/5*    3        1m05s   3m05s         web0",
        "",
        "arrows select  Enter opens  x revokes  s sorts  r reverses  / filters  q quits",
    ];
    assert_eq!(screen(&mut model, 80, 8), expected);
}

#[test]
fn a_small_screen_shows_the_selected_row_and_the_ends_of_no_text() {
    let mut model = model();
    screen(&mut model, 66, 5);
    press(&mut model, "jj");
    let expected = [
        "3 of 3 names, sort name, 1 not read yet, server s:6379, prefix p",
        "last reading 14:03:01 UTC",
        "  NAME      KIND       IN USE  WAITING  OLDEST  LONGEST WAIT",
        "> market:2  semaphore  1/5*    3        1m05s   3m05s",
        "arrows select  Enter opens  x revokes  s sorts  r reverses  / filt",
    ];
    assert_eq!(screen(&mut model, 66, 5), expected);
    for (width, height) in [(0, 0), (1, 1), (3, 2), (10, 3), (10, 4)] {
        assert_eq!(screen(&mut model, width, height).len(), usize::from(height));
    }
}

#[test]
fn a_long_name_leaves_room_for_the_other_columns() {
    let mut model = model();
    let long = sample(&"x".repeat(200), 1, 0);
    model.take(Report::Stored(vec![long.name.clone()]), at(2));
    model.take(Report::Read(long.name.clone(), Some(long)), at(2));
    let row = screen(&mut model, 80, 5).swap_remove(3);
    assert_eq!(row, "> xxxxxxxxxxxxxxxxxx  semaphore  1/5     0        1m05s   -             web0");
}

#[test]
fn on_a_narrow_screen_the_names_stay_readable() {
    let mut model = model();
    let long = sample("market:account:17", 1, 0);
    model.take(Report::Stored(vec![long.name.clone()]), at(2));
    model.take(Report::Read(long.name.clone(), Some(long)), at(2));
    for (width, expected) in [
        (20, "> market:account:17"),
        (40, "> market:account:17  semaphore  1/5"),
        (66, "> market:account:17  semaphore  1/5     0        1m05s"),
        (80, "> market:account:17  semaphore  1/5     0        1m05s   -             web0"),
    ] {
        assert_eq!(screen(&mut model, width, 5).swap_remove(3), expected);
    }
    assert_eq!(screen(&mut model, 12, 5).swap_remove(3), "> market:acc");
}

#[test]
fn control_characters_of_a_label_do_not_reach_the_terminal() {
    let mut model = model();
    let label = Sample { labels: vec!["\u{1b}[2Jweb".to_owned()], ..sample("a", 1, 0) };
    model.take(Report::Read(label.name.clone(), Some(label)), at(2));
    let row = screen(&mut model, 80, 8).swap_remove(3);
    assert_eq!(row, "> a         semaphore  1/5     0        1m05s   -             \\u{1b}[2Jweb");
}

#[test]
fn an_outage_is_shown_above_the_last_table() {
    let mut model = model();
    let table = screen(&mut model, 80, 8);
    model.take(Report::Failed("no connection\nremedy".to_owned()), at(7));
    model.take(Report::Failed("refused\nremedy".to_owned()), at(8));
    let lines = screen(&mut model, 80, 8);
    assert_eq!(lines[1], "cannot be read since 14:03:01 UTC: refused");
    assert_eq!((&lines[0], &lines[2..]), (&table[0], &table[2..]));
    model.take(Report::Found(Vec::new()), at(9));
    assert_eq!(screen(&mut model, 80, 8)[1], "last reading 14:03:09 UTC");
}

fn owner(id: &str, state: &str) -> Owner {
    Owner {
        id: id.to_owned(),
        cells: [state, "1", "2m05s", "25s", "17", "-", id].map(str::to_owned).to_vec(),
        description: format!("holder {id}, 1 permit(s) for 2m05s, lease left 25s"),
        can_be_revoked: true,
    }
}

#[test]
fn an_opened_name_shows_its_holders_and_the_whole_selected_id() {
    let mut model = model();
    screen(&mut model, 80, 8);
    press(&mut model, "j\n");
    assert_eq!(screen(&mut model, 80, 8)[0], "semaphore market:1: not read yet, server s:6379, prefix p");
    let owners = vec![owner("web/0123456789-0123456789-0123456789", "held"), owner("batch/2", "waits 1")];
    let detail = Detail { sample: Some(sample("market:1", 1, 1)), owners, more: 7 };
    model.take(Report::Opened(name("market:1"), detail), at(5));
    let expected = [
        "semaphore market:1: in use 1/5*, waiting 1, 7 more are not shown, server s:6379,",
        "last reading 14:03:05 UTC",
        "  STATE    PERMITS  SINCE  LEASE LEFT  FENCE  REASON    ID",
        "> held     1        2m05s  25s         17     -         web/0123456789-012345678",
        "  waits 1  1        2m05s  25s         17     -         batch/2",
        "",
        "id web/0123456789-0123456789-0123456789",
        "arrows select  x revokes  Esc goes back  q quits",
    ];
    assert_eq!(screen(&mut model, 80, 8), expected);
    let gone = Detail { sample: None, owners: Vec::new(), more: 0 };
    model.take(Report::Opened(name("market:1"), gone), at(6));
    assert!(screen(&mut model, 80, 8)[0].starts_with("semaphore market:1: nobody holds it and nobody waits"));
}

#[test]
fn the_footer_asks_before_a_revocation() {
    let mut model = model();
    screen(&mut model, 80, 8);
    press(&mut model, "j\n");
    let detail =
        Detail { sample: Some(sample("market:1", 1, 0)), owners: vec![owner("web/1", "held")], more: 0 };
    model.take(Report::Opened(name("market:1"), detail), at(5));
    screen(&mut model, 80, 8);
    press(&mut model, "x");
    let footer = |model: &mut Model, width| screen(model, width, 8).swap_remove(7);
    assert_eq!(footer(&mut model, 80), "Revoke holder web/1, 1 permit(s) for 2m05s, lease left 25s? y/n");
    assert_eq!(footer(&mut model, 30), "Revoke holder web/1, 1 pe? y/n");
    press(&mut model, "n");
    assert_eq!(footer(&mut model, 80), "not confirmed, nothing was changed");
}

#[test]
fn the_header_names_the_order_and_the_filter_and_the_footer_shows_what_is_typed() {
    let mut model = model();
    press(&mut model, "ssssr/mark");
    assert_eq!(screen(&mut model, 80, 8)[7], "Filter (Enter applies, Esc clears): mark_");
    press(&mut model, "\n");
    let lines = screen(&mut model, 120, 8);
    let header = "2 of 3 names, sort waiting reverse, filter mark, 1 not read yet, server s:6379, prefix p";
    assert_eq!(lines[0], header);
    assert!(lines[3].contains("market:1") && lines[4].contains("market:2"), "{lines:?}");
}
