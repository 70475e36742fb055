//! The effects of keys.

use super::model::{Model, Question};
use super::scroll::Step;
use crate::args::{Column, Order};
use clap::ValueEnum;
use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use luagate::admin::Name;

/// The effect of a key besides a change of the model.
#[derive(Debug, PartialEq, Eq)]
pub enum Action {
    Nothing,
    Quit,
    /// Confirmed.
    Revoke {
        name: Name,
        id: String,
    },
}

impl Model {
    /// Changes the model as the key asks for.
    pub fn press(&mut self, key: KeyEvent) -> Action {
        if key.kind == KeyEventKind::Release {
            return Action::Nothing;
        }
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return if key.code == KeyCode::Char('c') { Action::Quit } else { Action::Nothing };
        }
        self.message = None;
        if let Some(question) = self.question.take() {
            return self.answer(question, key.code);
        }
        if let Some(text) = self.editing.take() {
            self.edit(text, key.code);
            return Action::Nothing;
        }
        if let Some(step) = step(key.code) {
            self.step(step);
            return Action::Nothing;
        }
        match (key.code, self.opened.is_some()) {
            (KeyCode::Char('q'), _) => return Action::Quit,
            (KeyCode::Char('x'), true) => self.ask(),
            (KeyCode::Esc, true) => self.opened = None,
            (KeyCode::Esc, false) => self.set_filter(None),
            (KeyCode::Enter | KeyCode::Char('x'), false) => self.open(),
            (KeyCode::Char('s'), false) => {
                self.set_order(Order { sort: next(self.order.sort), ..self.order })
            }
            (KeyCode::Char('r'), false) => {
                self.set_order(Order { reverse: !self.order.reverse, ..self.order })
            }
            (KeyCode::Char('/'), false) => {
                self.editing = Some(self.filter.as_ref().map(|typed| typed.text.clone()).unwrap_or_default());
            }
            _ => {}
        }
        Action::Nothing
    }

    /// Asks whether to revoke the selected holder or waiter.
    fn ask(&mut self) {
        let Some(opened) = &self.opened else { return };
        match opened.selected() {
            Some(owner) if owner.can_be_revoked => {
                let (name, id, description) =
                    (opened.name.clone(), owner.id.clone(), owner.description.clone());
                self.question = Some(Question { name, id, description });
            }
            Some(_) => self.message = Some("released already; nobody holds it".to_owned()),
            None if opened.detail.is_none() => self.message = Some("not read yet".to_owned()),
            None => self.message = Some("nobody holds it and nobody waits".to_owned()),
        }
    }

    /// Only `y` confirms. `n` and Esc refuse; other keys do nothing.
    fn answer(&mut self, question: Question, key: KeyCode) -> Action {
        match key {
            KeyCode::Char('y') => {
                self.message = Some(format!("revoking {} ...", question.id));
                return Action::Revoke { name: question.name, id: question.id };
            }
            KeyCode::Char('n') | KeyCode::Esc => {
                self.message = Some("not confirmed, nothing was changed".to_owned())
            }
            _ => self.question = Some(question),
        }
        Action::Nothing
    }

    fn edit(&mut self, mut text: String, key: KeyCode) {
        match key {
            KeyCode::Enter => return self.set_filter(Some(&text)),
            KeyCode::Esc => return self.set_filter(None),
            KeyCode::Backspace => drop(text.pop()),
            KeyCode::Char(char) => text.push(char),
            _ => {}
        }
        self.editing = Some(text);
    }
}

fn step(key: KeyCode) -> Option<Step> {
    Some(match key {
        KeyCode::Up | KeyCode::Char('k') => Step::Up,
        KeyCode::Down | KeyCode::Char('j') => Step::Down,
        KeyCode::PageUp => Step::PageUp,
        KeyCode::PageDown => Step::PageDown,
        KeyCode::Home => Step::Home,
        KeyCode::End => Step::End,
        _ => return None,
    })
}

fn next(column: Column) -> Column {
    let after = Column::value_variants().iter().skip_while(|known| **known != column).nth(1);
    after.copied().unwrap_or(Column::Name)
}
