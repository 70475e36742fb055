//! The clients that have a driver.

use super::language::Language;
use super::support::process;
use std::process::Command;

#[derive(Clone)]
pub struct Client {
    pub name: String,
    /// Nothing for the two forms of the Rust API.
    language: Option<Language>,
    /// The value of `LUAGATE_CLIENT`: another version of the underlying library, or another library.
    variant: Option<&'static str>,
}

impl Client {
    pub fn all(languages: &[Language]) -> Vec<Client> {
        let rust = ["rust", "rust_async"].map(|name| Client {
            name: name.to_owned(),
            language: None,
            variant: None,
        });
        let mut clients = Vec::from(rust);
        for language in languages {
            clients.push(Client::of(language));
            let more: &[&str] = match language.name {
                "javascript" => &["ioredis", "ioredis-oldest"],
                "java" => &["lettuce", "lettuce-oldest"],
                _ => &[],
            };
            for variant in more.iter().copied().chain(["oldest"]) {
                let name = format!("{}_{variant}", language.name);
                clients.push(Client { name, variant: Some(variant), ..Client::of(language) });
            }
        }
        clients
    }

    /// With the newest supported version of the underlying library.
    pub fn of(language: &Language) -> Client {
        Client { name: language.name.to_owned(), language: Some(language.clone()), variant: None }
    }

    /// Whether it runs all faults: not with an old version of a library.
    pub fn runs_all(&self) -> bool {
        self.variant.is_none_or(|variant| variant == "lettuce")
    }

    /// Why this machine cannot run it.
    pub fn missing(&self) -> Option<&str> {
        self.language.as_ref()?.missing.as_deref()
    }

    /// Whether it is the reference.
    pub fn is_rust(&self) -> bool {
        self.language.is_none()
    }

    /// The name without the variant.
    pub fn base(&self) -> &str {
        self.language.as_ref().map_or(&*self.name, |language| language.name)
    }

    pub fn command(&self) -> Command {
        let Some(language) = &self.language else { return process(&format!("{} driver", self.name), &[]) };
        let mut command = language.run("driver", &[]);
        command.envs(self.variant.map(|variant| ("LUAGATE_CLIENT", variant)));
        command
    }
}
