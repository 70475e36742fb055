//! The clients that have a driver.

use super::language::Language;
use super::support::process;
use std::process::Command;

#[derive(Clone)]
pub struct Client {
    pub name: String,
    /// Nothing for the two forms of the Rust API.
    language: Option<Language>,
    /// With the oldest supported version of the underlying library.
    is_oldest: bool,
}

impl Client {
    pub fn all() -> Vec<Client> {
        let rust =
            ["rust", "rust_async"].map(|name| Client { name: name.to_owned(), language: None, is_oldest: false });
        let mut clients = Vec::from(rust);
        for language in Language::all() {
            for is_oldest in [false, true] {
                let name = if is_oldest { format!("{}_oldest", language.name) } else { language.name.to_owned() };
                clients.push(Client { name, language: Some(language.clone()), is_oldest });
            }
        }
        clients
    }

    /// Why this machine cannot run it.
    pub fn missing(&self) -> Option<&str> {
        self.language.as_ref()?.missing.as_deref()
    }

    /// Whether it is the reference.
    pub fn is_rust(&self) -> bool {
        self.language.is_none()
    }

    /// The name without the version of the underlying library.
    pub fn base(&self) -> &str {
        self.name.strip_suffix("_oldest").unwrap_or(&self.name)
    }

    pub fn command(&self) -> Command {
        let Some(language) = &self.language else { return process(&self.name, &[]) };
        let mut command = language.run("driver", &[]);
        if self.is_oldest {
            command.env("LUAGATE_CLIENT", "oldest");
        }
        command
    }
}
