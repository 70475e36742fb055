//! The host name `slow.test`. A test decides which address it has, and how long a look-up of it takes, for
//! processes that are started with this resolver in place of the system's.

use super::Environment;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// The name that these look-ups find.
pub const NAME: &str = "slow.test";

const SOURCE: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int look_up(const char *, const char *, const struct addrinfo *, struct addrinfo **);

static FILE *open_file(const char *name, const char *mode) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", getenv("SLOW_RESOLVER"), name);
    return fopen(path, mode);
}

int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **found) {
    look_up *system = (look_up *)dlsym(RTLD_NEXT, "getaddrinfo");
    if (!node || strcmp(node, "slow.test") != 0) return system(node, service, hints, found);
    FILE *file = open_file("begun", "a");
    fputs(".", file);
    fclose(file);
    int time = 0;
    if ((file = open_file("time", "r"))) {
        fscanf(file, "%d", &time);
        fclose(file);
    }
    usleep(time * 1000);
    for (int left = 60000; left > 0 && (file = open_file("held", "r")); left--) {
        fclose(file);
        usleep(1000);
    }
    char address[64] = "";
    file = open_file("address", "r");
    fscanf(file, "%63s", address);
    fclose(file);
    return system(address, service, hints, found);
}
"#;

pub struct Resolver {
    folder: PathBuf,
    _kept: Option<TempDir>,
}

impl Resolver {
    /// The name has the address 127.0.0.1, and is found at once. An error: there is none on this machine, and
    /// why.
    pub fn new() -> Result<Resolver, &'static str> {
        if !cfg!(all(target_os = "linux", target_env = "gnu")) {
            return Err("needs Linux with glibc");
        }
        let folder = tempfile::Builder::new().prefix("luagate").tempdir().unwrap();
        let source = folder.path().join("resolver.c");
        fs::write(&source, SOURCE).unwrap();
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-w", "-o"]).arg(folder.path().join("resolver.so")).arg(&source);
        let Ok(status) = compiler.arg("-ldl").status() else {
            return Err("needs a C compiler (cc)");
        };
        assert!(status.success(), "the resolver does not compile");
        let resolver = Resolver { folder: folder.path().to_owned(), _kept: Some(folder) };
        resolver.leads_to("127.0.0.1");
        Ok(resolver)
    }

    /// The resolver of this process, which was started with its variables.
    pub fn of_this_process() -> Resolver {
        Resolver { folder: std::env::var_os("SLOW_RESOLVER").expect("a resolver").into(), _kept: None }
    }

    /// The variables of a process that uses it.
    pub fn variables(&self) -> Environment {
        let library = self.folder.join("resolver.so");
        vec![("LD_PRELOAD".into(), library.into()), ("SLOW_RESOLVER".into(), self.folder.clone().into())]
    }

    /// The address of the name from now on.
    pub fn leads_to(&self, address: &str) {
        replace(&self.folder.join("address"), address);
    }

    /// How long each look-up takes from now on.
    pub fn takes(&self, time: Duration) {
        replace(&self.folder.join("time"), &time.as_millis().to_string());
    }

    /// Look-ups do not end before `let_go`.
    pub fn hold(&self) {
        replace(&self.folder.join("held"), "");
    }

    pub fn let_go(&self) {
        fs::remove_file(self.folder.join("held")).unwrap();
    }

    /// How many look-ups have begun.
    pub fn begun(&self) -> usize {
        fs::read(self.folder.join("begun")).map_or(0, |marks| marks.len())
    }
}

/// A look-up reads the former text or the new one.
fn replace(file: &Path, text: &str) {
    let new = file.with_extension("new");
    fs::write(&new, text).unwrap();
    fs::rename(new, file).unwrap();
}
