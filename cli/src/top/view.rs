//! Draws the model.

use super::detail;
use super::model::{Model, Opened, Row};
use super::scroll::Scroll;
use crate::args::Column;
use crate::list;
use crate::output::visible;
use clap::ValueEnum;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{self, Table, TableState};
use std::time::{SystemTime, UNIX_EPOCH};

/// The lines besides the rows: two lines of header, the columns, the footer.
const OTHER_LINES: u16 = 4;
/// The line with the whole id, of an opened name.
const ID_LINE: u16 = 1;
/// Between two columns.
const SPACE: u16 = 2;
/// Before the selected row, and as wide before the others.
const MARK: &str = "> ";
/// A long name leaves this much for the last column.
const LAST: u16 = 8;
/// A name gets this much at least, before other columns are shown.
const READABLE: u16 = 16;

const KEYS: &str = "arrows select  Enter opens  x revokes  s sorts  r reverses  / filters  q quits";
const KEYS_OPENED: &str = "arrows select  x revokes  Esc goes back  q quits";

/// How many rows a screen of this height has room for.
pub fn rows(height: u16, is_opened: bool) -> usize {
    usize::from(height.saturating_sub(OTHER_LINES + if is_opened { ID_LINE } else { 0 }))
}

pub fn draw(frame: &mut Frame, model: &Model) {
    let [first, second, table, footer] = areas(frame.area());
    frame.render_widget(header(model), first);
    frame.render_widget(state(model), second);
    match &model.opened {
        None => draw_list(frame, model, table),
        Some(opened) => draw_opened(frame, opened, table),
    }
    frame.render_widget(prompt(model, footer.width), footer);
}

fn areas(area: Rect) -> [Rect; 4] {
    let [one, fill] = [Constraint::Length(1), Constraint::Fill(1)];
    Layout::vertical([one, one, fill, one]).areas(area)
}

/// The content of the screen, and the server.
fn header(model: &Model) -> Line<'static> {
    let text = match &model.opened {
        Some(opened) => format!("{}, {}", describe(opened), model.place),
        None => {
            let (shown, found) = model.counts();
            let mut text = format!("{shown} of {found} names, sort {}", column(model.order.sort));
            if model.order.reverse {
                text += " reverse";
            }
            if let Some(filter) = &model.filter {
                text += &format!(", filter {}", filter.text);
            }
            if model.unread > 0 {
                text += &format!(", {} not read yet", model.unread);
            }
            format!("{text}, {}", model.place)
        }
    };
    Line::styled(visible(&text), Modifier::BOLD)
}

/// As the first line of `luagate inspect`.
fn describe(opened: &Opened) -> String {
    let name = &opened.name;
    match opened.detail.as_ref().map(|detail| (&detail.sample, detail.more)) {
        None => format!("{name}: not read yet"),
        Some((None, _)) => format!("{name}: nobody holds it and nobody waits"),
        Some((Some(sample), more)) => {
            let more = if more > 0 { format!(", {more} more are not shown") } else { String::new() };
            format!("{name}: in use {}, waiting {}{more}", sample.usage(), sample.waiting)
        }
    }
}

fn column(column: Column) -> String {
    column.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// Whether the table is up to date.
fn state(model: &Model) -> Line<'static> {
    match (&model.outage, model.last_reading) {
        (Some(outage), _) => {
            let error = outage.error.lines().next().unwrap_or_default();
            let text = visible(&format!("cannot be read since {}: {error}", clock(outage.since)));
            Line::styled(text, Color::Red)
        }
        (None, Some(time)) => Line::raw(format!("last reading {}", clock(time))),
        (None, None) => Line::raw("reading ..."),
    }
}

/// The time of the day in UTC, since there is no time zone that all readers share.
fn clock(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).map(|time| time.as_secs()).unwrap_or_default();
    format!("{:02}:{:02}:{:02} UTC", seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60)
}

fn draw_list(frame: &mut Frame, model: &Model, area: Rect) {
    let rows: Vec<Vec<String>> = model.visible().map(cells).collect();
    draw_table(frame, area, &list::HEAD, rows, &model.scroll, 0);
}

/// Only the name and the kind of a row that was not read yet.
fn cells(row: &Row) -> Vec<String> {
    let mut cells = list::cells(&row.sample);
    if !row.is_read {
        cells.iter_mut().skip(2).for_each(String::clear);
    }
    cells
}

fn draw_opened(frame: &mut Frame, opened: &Opened, area: Rect) {
    let [table, id] = Layout::vertical([Constraint::Fill(1), Constraint::Length(ID_LINE)]).areas(area);
    // The reason is cut if there is not enough room. It is also in the id below the table.
    let rows = opened.scroll.window(opened.owners()).iter().map(|owner| owner.cells.clone()).collect();
    draw_table(frame, table, &detail::HEAD, rows, &opened.scroll, detail::REASON);
    if let Some(owner) = opened.selected() {
        frame.render_widget(Line::raw(format!("id {}", visible(&owner.id))), id);
    }
}

/// Makes a column so narrow that the last one has some room.
fn narrow(widths: &mut [u16], cut: usize, room: u16) {
    let spaces = SPACE * u16::try_from(widths.len().saturating_sub(1)).unwrap_or(u16::MAX);
    let others = widths.iter().enumerate().filter(|(index, _)| *index != cut && *index + 1 != widths.len());
    let others = others.fold(spaces + LAST, |sum, (_, width)| sum.saturating_add(*width));
    if let Some(width) = widths.get_mut(cut) {
        *width = room.saturating_sub(others).clamp(LAST, (*width).max(LAST));
    }
}

/// Draws rows of cells. The last column gets the room that is left. `cut`: the column that leaves some for
/// the others. If it is the first one, a name, it gets the room of those that do not fit.
fn draw_table(
    frame: &mut Frame,
    area: Rect,
    head: &[&str],
    rows: Vec<Vec<String>>,
    scroll: &Scroll,
    cut: usize,
) {
    let width = |text: &str| u16::try_from(Line::raw(text).width()).unwrap_or(u16::MAX);
    let rows: Vec<Vec<String>> =
        rows.iter().map(|row| row.iter().map(|cell| visible(cell)).collect()).collect();
    let mut widths: Vec<u16> = head.iter().map(|text| width(text)).collect();
    for row in &rows {
        for (widest, cell) in widths.iter_mut().zip(row) {
            *widest = width(cell).max(*widest);
        }
    }
    let room = area.width.saturating_sub(width(MARK));
    if cut == 0 {
        fit(&mut widths, room)
    } else {
        narrow(&mut widths, cut, room)
    }
    let count = widths.len();
    widths.pop();
    let rows = rows.into_iter().map(|row| widgets::Row::new(row.into_iter().take(count)));
    let constraints = widths.into_iter().map(Constraint::Length).chain([Constraint::Fill(1)]);
    let is_empty = rows.len() == 0;
    let table = Table::new(rows, constraints)
        .header(widgets::Row::new(head.iter().take(count).copied()).style(Modifier::BOLD))
        .column_spacing(SPACE)
        .highlight_symbol(MARK)
        .highlight_spacing(widgets::HighlightSpacing::Always)
        .row_highlight_style(Style::from(Modifier::REVERSED));
    let selected = (!is_empty).then(|| scroll.at.saturating_sub(scroll.first));
    frame.render_stateful_widget(table, area, &mut TableState::default().with_selected(selected));
}

/// Removes the last columns that leave too little room for the first one, and cuts that.
fn fit(widths: &mut Vec<u16>, room: u16) {
    if let Some(last) = widths.last_mut() {
        *last = LAST;
    }
    while let [name, others @ ..] = &mut widths[..] {
        let others = others.iter().fold(0, |sum: u16, width| sum.saturating_add(SPACE + width));
        let left = room.saturating_sub(others);
        if left >= READABLE.min(*name) || others == 0 {
            *name = left.min(*name);
            return;
        }
        widths.pop();
    }
}

/// The last line: a question, a text that is typed, a message, or the keys.
fn prompt(model: &Model, width: u16) -> Line<'static> {
    if let Some(question) = &model.question {
        let end = "? y/n";
        let room = usize::from(width).saturating_sub(end.len());
        let mut text = visible(&format!("Revoke {}", question.description));
        while Line::raw(text.as_str()).width() > room && text.pop().is_some() {}
        return Line::styled(text + end, Modifier::BOLD);
    }
    if let Some(text) = &model.editing {
        return Line::raw(visible(&format!("Filter (Enter applies, Esc clears): {text}_")));
    }
    match (&model.message, &model.opened) {
        (Some(message), _) => Line::styled(visible(message), Modifier::BOLD),
        (None, Some(_)) => Line::raw(KEYS_OPENED),
        (None, None) => Line::raw(KEYS),
    }
}

#[cfg(test)]
mod tests;
