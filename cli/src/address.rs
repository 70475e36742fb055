//! The server: its address from the arguments or the environment, and the gate there.

use crate::ended::{Ended, UNREACHABLE};
use crate::password_file;
use clap::Args;
use luagate::{Credentials, Gate, GateBuilder};
use serde::{Deserialize, Serialize};
use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};

/// The environment variable that carries a URL with a password past the process list. A command that luagate
/// runs does not get it.
pub const HIDDEN_URL: &str = "LUAGATE_HIDDEN_URL";

#[derive(Args, Clone, PartialEq, Serialize, Deserialize)]
pub struct ServerArgs {
    /// Server, e.g. redis://host/ [env: LUAGATE_URL, REDIS_URL]
    #[arg(long, global = true, value_name = "URL", hide = true)]
    url: Option<String>,
    /// File with the password; read at each connection [env: LUAGATE_PASSWORD_FILE]
    #[arg(long, global = true, value_name = "FILE", hide = true)]
    password_file: Option<PathBuf>,
    /// Start of every key [env: LUAGATE_PREFIX] [default: luagate]
    #[arg(long, global = true, value_name = "PREFIX", hide = true)]
    prefix: Option<String>,
    /// CA certificates to trust instead of the system's (PEM)
    #[arg(long, global = true, value_name = "FILE", hide = true)]
    ca: Option<PathBuf>,
    /// Certificate of this client (PEM), with --key
    #[arg(long, global = true, value_name = "FILE", hide = true, requires = "key")]
    cert: Option<PathBuf>,
    /// Private key of this client (PEM), with --cert
    #[arg(long, global = true, value_name = "FILE", hide = true, requires = "cert")]
    key: Option<PathBuf>,
}

impl ServerArgs {
    /// The URL of the server, from the first source that has one.
    fn url(&self) -> String {
        // The hidden URL was an argument, which comes before the variables.
        variable(HIDDEN_URL)
            .or_else(|| self.url.clone())
            .or_else(|| variable("LUAGATE_URL"))
            .or_else(|| variable("REDIS_URL"))
            .unwrap_or_else(|| "redis://127.0.0.1/".to_owned())
    }

    /// The start of every key.
    pub fn prefix(&self) -> String {
        self.prefix.clone().or_else(|| variable("LUAGATE_PREFIX")).unwrap_or_else(|| "luagate".to_owned())
    }

    /// The file with the password, if there is one.
    fn password_file(&self) -> Option<PathBuf> {
        self.password_file.clone().or_else(|| variable("LUAGATE_PASSWORD_FILE").map(PathBuf::from))
    }

    /// The same server, for a process without these variables and in another folder.
    pub fn resolved(&self) -> ServerArgs {
        let file = |file: &Option<PathBuf>| {
            file.as_ref().map(|file| std::path::absolute(file).unwrap_or(file.clone()))
        };
        let [password_file, ca, cert, key] =
            [&self.password_file(), &self.ca, &self.cert, &self.key].map(file);
        ServerArgs { url: Some(self.url()), password_file, prefix: Some(self.prefix()), ca, cert, key }
    }

    /// Settings for a gate at this server.
    pub fn builder(&self) -> Result<GateBuilder, Ended> {
        let read = |file: &Path| {
            std::fs::read(file)
                .map_err(|error| Ended::usage(format!("cannot read {}: {error}", file.display())))
        };
        let mut builder = Gate::builder(&self.url()).prefix(&self.prefix());
        if let Some(file) = &self.ca {
            builder = builder.root_certificates(read(file)?);
        }
        if let (Some(cert), Some(key)) = (&self.cert, &self.key) {
            builder = builder.client_certificate(read(cert)?, read(key)?);
        }
        if let Some(file) = self.password_file() {
            builder = builder.credentials(move || password_file::read(&file).map(Credentials::password));
        }
        Ok(builder)
    }

    /// Opens a gate at this server.
    pub fn open(&self) -> Result<Gate, Ended> {
        self.open_with(self.builder()?)
    }

    /// Opens a gate with these settings.
    pub fn open_with(&self, builder: GateBuilder) -> Result<Gate, Ended> {
        builder.open().map_err(|error| self.at(Ended::of(error)))
    }

    /// Reports a file that cannot be used, before the command begins to wait for the server.
    pub fn check_files(&self) -> Result<(), Ended> {
        let _ = self.builder()?;
        let password = self.password_file().map(|file| password_file::read(&file)).transpose();
        password.map(drop).map_err(|why| Ended::new(UNREACHABLE, format!("--password-file: {why}")))
    }

    /// Adds the address to the message, without user and password.
    pub fn at(&self, ended: Ended) -> Ended {
        let url = self.url();
        let (scheme, rest) = url.split_once("://").unwrap_or_default();
        let authority = rest.split('?').next().unwrap_or_default(); // a password may follow
        let hosts = authority.rsplit_once('@').map_or(authority, |(_, hosts)| hosts);
        match ended {
            Ended { status: UNREACHABLE, message: Some(message), .. } => {
                Ended::new(UNREACHABLE, format!("{scheme}://{hosts}: {message}"))
            }
            ended => ended,
        }
    }
}

/// The value of an environment variable that is set and not empty.
fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

/// A password in the arguments is visible to all users of the machine. If `--url` contains one, replaces this
/// process by one without it in its arguments. Scripts should use `LUAGATE_URL`, so that it is not visible in
/// between either.
pub fn hide_password() {
    let mut arguments = env::args_os();
    let Some(name) = arguments.next() else { return };
    let (mut kept, mut hidden) = (Vec::new(), None);
    while let Some(argument) = arguments.next() {
        if argument == "--" {
            kept.push(argument);
            kept.extend(arguments.by_ref());
        } else if argument == "--url" {
            match arguments.next() {
                Some(url) if has_password(&url) => hidden = Some(url),
                url => kept.extend([argument].into_iter().chain(url)),
            }
        } else if let Some(url) = argument.as_bytes().strip_prefix(b"--url=")
            && has_password(OsStr::from_bytes(url))
        {
            hidden = Some(OsString::from(OsStr::from_bytes(url)));
        } else {
            kept.push(argument);
        }
    }
    if let (Some(url), Ok(program)) = (hidden, env::current_exe()) {
        let error = std::process::Command::new(program).arg0(name).args(kept).env(HIDDEN_URL, url).exec();
        let text =
            format!("cannot remove the password of --url from the process list: {error}. Use LUAGATE_URL");
        crate::output::warn(text);
    }
}

/// An argument of any kind as a text, without the rest of a URL in it that may contain a password.
pub fn without_password(argument: &OsStr) -> String {
    let text = argument.to_string_lossy();
    match text.split_once("://") {
        Some((before, _)) if has_password(argument) => format!("{before}://***"),
        _ => text.into_owned(),
    }
}

/// Whether the URL may contain a password. It may be anywhere in it if it is not encoded.
fn has_password(url: &OsStr) -> bool {
    url.as_bytes().contains(&b'@') || url.to_string_lossy().contains("pass")
}
