//! A pseudo-terminal and its screen.

use crate::support::leftovers::{MARK, mark};
use crate::support::{SOON, Server};
use portable_pty::{Child, CommandBuilder, NativePtySystem, PtyPair, PtySize, PtySystem};
use std::io::{Read, Write};
use std::num::NonZero;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

pub struct Terminal {
    pair: PtyPair,
    screen: Arc<Mutex<vt100::Parser>>,
    keyboard: Box<dyn Write + Send>,
}

impl Terminal {
    pub fn new(rows: u16, cols: u16) -> Terminal {
        let pair = NativePtySystem::default().openpty(PtySize { rows, cols, ..PtySize::default() }).unwrap();
        let screen = Arc::new(Mutex::new({
            let [rows, cols] = [rows, cols].map(|n| NonZero::new(n).unwrap());
            vt100::Parser::new(rows, cols, 0)
        }));
        let mut output = pair.master.try_clone_reader().unwrap();
        let shown = screen.clone();
        std::thread::spawn(move || {
            let mut buffer = [0; 4_096];
            while let Ok(count @ 1..) = output.read(&mut buffer) {
                shown.lock().unwrap().process(&buffer[..count]);
            }
        });
        let keyboard = pair.master.take_writer().unwrap();
        Terminal { pair, screen, keyboard }
    }

    /// Starts a command for this server.
    pub fn start(&self, server: &Server, program: &str, arguments: &[&str]) -> Box<dyn Child + Send + Sync> {
        let mut command = CommandBuilder::new(program);
        command.args(arguments);
        for (name, value) in
            [("LUAGATE_URL", &*server.url), ("LUAGATE_PREFIX", &server.prefix), (MARK, mark())]
        {
            command.env(name, value);
        }
        command.env("TERM", "xterm");
        command.env_remove("REDIS_URL");
        self.pair.slave.spawn_command(command).unwrap()
    }

    pub fn text(&self) -> String {
        self.screen.lock().unwrap().screen().contents()
    }

    /// Blocks until the screen shows what `is_shown` accepts.
    #[track_caller]
    pub fn shows(&self, what: &str, is_shown: impl Fn(&str) -> bool) -> String {
        let begun = Instant::now();
        loop {
            let text = self.text();
            if is_shown(&text) {
                return text;
            }
            assert!(begun.elapsed() < SOON, "not shown: {what}\n{text}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub fn type_in(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
        self.keyboard.flush().unwrap();
    }

    pub fn resize(&self, rows: u16, cols: u16) {
        self.screen
            .lock()
            .unwrap()
            .screen_mut()
            .set_size(NonZero::new(rows).unwrap(), NonZero::new(cols).unwrap());
        self.pair.master.resize(PtySize { rows, cols, ..PtySize::default() }).unwrap();
    }
}
