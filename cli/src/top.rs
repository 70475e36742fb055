//! `luagate top`: all names, live.

mod detail;
mod keys;
mod model;
mod plan;
mod reader;
mod scroll;
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
use ratatui::DefaultTerminal;
use reader::Wish;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError};
use std::time::{Duration, SystemTime};

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
    let ended_by = signals()?;
    let (wishes, reports) = reader::start(gate, sample::NameFilter::of(&args.filter), args.interval)?;
    let screen = ratatui::try_init().map(Screen).inspect_err(|_| ratatui::restore())?;
    Top { model, wishes, reports, ended_by, asked: None }.run(screen)
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

/// The number of the last signal that asks this process to end, or 0.
fn signals() -> Result<Arc<AtomicUsize>, Ended> {
    let ended_by = Arc::new(AtomicUsize::new(0));
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        let number = usize::try_from(signal).unwrap_or_default();
        signal_hook::flag::register_usize(signal, ended_by.clone(), number)?;
    }
    Ok(ended_by)
}

/// A terminal that is restored at the end, also after an error. After a panic, the hook of ratatui has restored it.
struct Screen(DefaultTerminal);

impl Drop for Screen {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            ratatui::restore();
        }
    }
}

struct Top {
    model: Model,
    wishes: Sender<Wish>,
    reports: Receiver<Report>,
    ended_by: Arc<AtomicUsize>,
    /// The names on the screen that the reading thread was last sent.
    asked: Option<(Vec<Name>, Option<Name>)>,
}

impl Top {
    fn run(mut self, mut screen: Screen) -> Result<u8, Ended> {
        loop {
            self.take_reports()?;
            let size = screen.0.size()?;
            self.model.arrange(view::rows(size.height, self.model.opened.is_some()));
            screen.0.draw(|frame| view::draw(frame, &self.model))?;
            self.tell_what_is_shown()?;
            if self.take_keys()? {
                return Ok(0);
            }
            if let signal @ 1.. = self.ended_by.load(Ordering::Relaxed) {
                return Ok(u8::try_from(128 + signal).unwrap_or(u8::MAX));
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
