//! `luagate top`: all names, live.

mod detail;
mod keys;
mod model;
mod plan;
mod reader;
mod scroll;
mod terminal;
mod view;

use crate::address::ServerArgs;
use crate::args::TopArgs;
use crate::ended::Ended;
use crate::{list, sample};
use crossterm::event::{self, Event};
use keys::Action;
use luagate::Gate;
use luagate::admin::{self, Name};
use model::{Model, Report};
use reader::Wish;
use std::io::IsTerminal;
use std::sync::mpsc::{Receiver, Sender, TryRecvError};
use std::time::{Duration, SystemTime};
use terminal::{End, Screen};

/// How long to wait for a key before the screen is drawn again.
const REFRESH: Duration = Duration::from_millis(200);

pub fn top(server: &ServerArgs, args: TopArgs) -> Result<u8, Ended> {
    if !args.once && !std::io::stdout().is_terminal() {
        return Err(Ended::usage("top: stdout is not a terminal. Print the table once with --once"));
    }
    let gate = server.open()?;
    if args.once {
        let mut samples = sample::read_all(&gate, &args.filter)?;
        sample::sort(&mut samples, args.order);
        list::print(&samples, args.json)?;
        return Ok(0);
    }
    let model = Model::new(place(&gate, &server.prefix())?, &args.filter, args.order);
    let end = End::watch()?;
    let (wishes, reports) = reader::start(gate, sample::NameFilter::of(&args.filter), args.interval)?;
    let result = Top { model, wishes, reports, end: end.clone(), asked: None }.run(Screen::new()?);
    // A screen whose terminal has gone cannot be drawn.
    end.status().map_or(result, Ok)
}

/// The server and the prefix, for the header.
fn place(gate: &Gate, prefix: &str) -> Result<String, Ended> {
    let masters = admin::masters(gate).map_err(Ended::of)?;
    let more = match masters.len() {
        0 | 1 => String::new(),
        count => format!(" and {} more", count - 1),
    };
    let address = masters.first().map(luagate::admin::Master::address).unwrap_or_default();
    Ok(format!("server {address}{more}, prefix {prefix}"))
}

struct Top {
    model: Model,
    wishes: Sender<Wish>,
    reports: Receiver<Report>,
    end: End,
    /// The names on the screen that the reading thread was last sent.
    asked: Option<(Vec<Name>, Option<Name>)>,
}

impl Top {
    fn run(mut self, mut screen: Screen) -> Result<u8, Ended> {
        loop {
            self.take_reports()?;
            let size = screen.size()?;
            self.model.arrange(view::rows(size.height, self.model.opened.is_some()));
            screen.draw(|frame| view::draw(frame, &self.model))?;
            self.tell_what_is_shown()?;
            if self.take_keys()? {
                return Ok(0);
            }
            if let Some(status) = self.end.status() {
                return Ok(status);
            }
        }
    }

    fn take_reports(&mut self) -> Result<(), Ended> {
        loop {
            match self.reports.try_recv() {
                Ok(report) => self.model.take(report, SystemTime::now()),
                Err(TryRecvError::Empty) => return Ok(()),
                Err(TryRecvError::Disconnected) => return Err(stopped()),
            }
        }
    }

    fn tell_what_is_shown(&mut self) -> Result<(), Ended> {
        let opened = self.model.opened.as_ref().map(|opened| opened.name.clone());
        // The list is not on the screen while a name is opened.
        let visible = match opened {
            Some(_) => Vec::new(),
            None => self.model.visible().map(|row| row.sample.name.clone()).collect(),
        };
        let asked = Some((visible, opened));
        if asked != self.asked {
            self.asked = asked.clone();
            if let Some((visible, opened)) = asked {
                self.wishes.send(Wish::Show { visible, opened }).map_err(|_| stopped())?;
            }
        }
        Ok(())
    }

    /// Waits for keys for a moment. Returns whether one of them ends the command.
    fn take_keys(&mut self) -> Result<bool, Ended> {
        let mut wait = REFRESH;
        while event::poll(wait)? {
            wait = Duration::ZERO;
            let Event::Key(key) = event::read()? else { continue };
            match self.model.press(key) {
                Action::Nothing => {}
                Action::Quit => return Ok(true),
                Action::Revoke { name, id } => {
                    self.wishes.send(Wish::Revoke { name, id }).map_err(|_| stopped())?;
                }
            }
        }
        Ok(false)
    }
}

fn stopped() -> Ended {
    Ended::new(1, "the thread that reads the server has ended")
}
