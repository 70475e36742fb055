//! After a change in `lua/`: writes each script in the form that the server receives, its SHA-1, and the
//! copies of both and of the list of errors for the clients. With a folder as its argument it only writes
//! each script with all comments there, for luacheck.

#[path = "../../../tests/support/includes.rs"]
mod includes;

use std::collections::BTreeMap;
use std::fs;
use std::io::Result;
use std::path::{Path, PathBuf};

/// The folders of the clients that contain the scripts.
const CLIENTS: [&str; 3] = ["python/luagate", "go", "java/src/main/resources/luagate"];
/// A module that contains them: a bundler finds no other files.
const MODULE: &str = "clients/javascript/lib/lua.js";
const PACKAGES: [&str; 4] = ["python", "javascript", "go", "java"];
const LICENCES: [&str; 2] = ["LICENSE-APACHE", "LICENSE-MIT"];

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Writes a file, and the folders that contain it.
fn write(path: &Path, text: &str) -> Result<()> {
    path.parent().map_or(Ok(()), fs::create_dir_all)?;
    fs::write(path, text)
}

/// The text between the first quotes of a line.
fn quoted(line: &str) -> &str {
    line.split('"').nth(1).unwrap_or_default()
}

/// The names of the scripts. Parses the manifest by its indentation, and so keeps its form.
fn names(manifest: &str) -> Vec<String> {
    let lines = manifest.lines().filter(|line| line.starts_with("    \""));
    lines.map(|line| quoted(line).to_owned()).collect()
}

/// The manifest with the SHA-1s of these scripts.
fn with_sha1s(manifest: &str, scripts: &BTreeMap<String, String>) -> String {
    let mut script = "";
    let lines = manifest.lines().map(|line| {
        if line.starts_with("    \"") {
            script = quoted(line);
        }
        if line.starts_with("      \"sha1\"") {
            format!("      \"sha1\": \"{}\",\n", sha1_smol::Sha1::from(&scripts[script]).digest())
        } else {
            format!("{line}\n")
        }
    });
    lines.collect()
}

fn write_scripts(folder: &Path, scripts: &BTreeMap<String, String>) -> Result<()> {
    scripts.iter().try_for_each(|(name, text)| write(&folder.join(name).with_extension("lua"), text))
}

/// A module of JavaScript with the texts of these files.
fn module(files: &[(String, &str)]) -> String {
    let escaped = |text: &str| text.replace('\\', "\\\\").replace('`', "\\`").replace("${", "\\${");
    let entries = files.iter().map(|(file, text)| format!("  '{file}': `{}`,\n", escaped(text)));
    let head = "// The files of the folder lua/, as texts. `./dev manifest` writes this file.\n";
    format!("{head}module.exports = {{\n{}}};\n", entries.collect::<String>())
}

fn remove(folder: &Path) -> Result<()> {
    if folder.exists() { fs::remove_dir_all(folder) } else { Ok(()) }
}

fn main() -> Result<()> {
    let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let lua = root.join("lua");
    let manifest = read(&lua.join("manifest.json"));
    let part = |file: &str| read(&lua.join(file));
    let source = |name: &str| part(&format!("{name}.lua"));
    // `holds` is not in the manifest: it is a part for users' own scripts.
    let names = names(&manifest).into_iter().chain(["semaphore/holds".to_owned()]);
    if let Some(folder) = std::env::args_os().nth(1) {
        let commented = |name: String| {
            let text = includes::expand(&source(&name), part);
            (name, text)
        };
        return write_scripts(Path::new(&folder), &names.map(commented).collect());
    }
    let whole = |name: String| {
        let text =
            includes::whole(&source(&name), part).unwrap_or_else(|error| panic!("lua/{name}.lua: {error}"));
        (name, text)
    };
    let scripts: BTreeMap<String, String> = names.map(whole).collect();
    let manifest = with_sha1s(&manifest, &scripts);
    let clients = CLIENTS.map(|client| root.join("clients").join(client).join("lua"));
    let (readme, errors) = (part("dist/README.md"), part("errors.json"));
    for folder in clients.iter().chain([&lua]) {
        remove(&folder.join("dist"))?; // it may contain a file of a former script
        write(&folder.join("dist/README.md"), &readme)?;
        write_scripts(&folder.join("dist"), &scripts)?;
        write(&folder.join("manifest.json"), &manifest)?;
        write(&folder.join("errors.json"), &errors)?;
    }
    let mut files = vec![("manifest.json".to_owned(), &*manifest), ("errors.json".to_owned(), &*errors)];
    files.extend(scripts.iter().map(|(name, text)| (format!("dist/{name}.lua"), &**text)));
    write(&root.join(MODULE), &module(&files))?;
    for client in PACKAGES {
        for licence in LICENCES {
            fs::copy(root.join(licence), root.join("clients").join(client).join(licence))?;
        }
    }
    Ok(())
}
