//! Copies `luagate-core`, and changes its files in the copy.

use crate::operators::{Mutant, Operators};
use proc_macro2::TokenStream;
use quote::{ToTokens, format_ident, quote};
use std::path::{Path, PathBuf};
use std::{env, fs};
use syn::visit_mut::VisitMut;
use syn::{Attribute, Item, ItemMod, Meta};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../..");

#[derive(Default)]
struct Tree {
    mutants: Vec<Mutant>,
    /// The unit tests, by their paths in the crate.
    tests: Vec<TokenStream>,
}

/// Writes the crate with the list of its mutants and the list of its unit tests.
pub fn write() {
    let out = PathBuf::from(env::var("OUT_DIR").unwrap());
    // The unit tests read a file in `lua`.
    for folder in ["crates/core/src", "lua"] {
        println!("cargo::rerun-if-changed={ROOT}/{folder}");
        let _ = fs::remove_dir_all(out.join(folder)); // may not exist yet
        copy(&Path::new(ROOT).join(folder), &out.join(folder));
    }
    let mut tree = Tree::default();
    tree.folder(&out.join("crates/core/src"), "", &quote!(crate));
    let Tree { mutants, tests } = tree;
    let mutants = mutants.iter().map(|mutant| {
        let Mutant { file, line, function, before, after, kind, ordinal } = mutant;
        quote! {
            Mutant {
                file: #file,
                line: #line,
                function: #function,
                before: #before,
                after: #after,
                kind: #kind,
                ordinal: #ordinal,
            }
        }
    });
    let lib = out.join("crates/core/src/lib.rs");
    // Without the inner attributes: another file includes this one.
    let items = parse(&lib).items;
    let text = quote! {
        #(#items)*
        pub(crate) const MUTANTS: &[crate::mutation::Mutant] = {
            use crate::mutation::Mutant;
            &[#(#mutants),*]
        };
        pub(crate) const UNIT_TESTS: &[fn()] = &[#(#tests),*];
    };
    fs::write(lib, text.to_string()).unwrap();
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let from = entry.unwrap().path();
        let to = to.join(from.file_name().unwrap());
        if from.is_dir() { copy(&from, &to) } else { fs::copy(&from, &to).map(drop).unwrap() }
    }
}

fn parse(path: &Path) -> syn::File {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

impl Tree {
    /// Changes the files of a folder. `place` is its path in the crate.
    fn folder(&mut self, folder: &Path, place: &str, module: &TokenStream) {
        let mut paths: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        for path in paths {
            let name = path.file_name().unwrap().to_str().unwrap();
            let stem = format_ident!("{}", name.trim_end_matches(".rs"));
            match name {
                "lib.rs" => {}
                "mod.rs" => self.file(&path, &format!("{place}{name}"), module),
                _ if path.is_dir() => self.folder(&path, &format!("{place}{name}/"), &quote!(#module::#stem)),
                _ => self.file(&path, &format!("{place}{name}"), &quote!(#module::#stem)),
            }
        }
    }

    fn file(&mut self, path: &Path, name: &str, module: &TokenStream) {
        let mut file = parse(path);
        let mut operators = Operators::new(name, self.mutants.len());
        for item in &mut file.items {
            match item {
                Item::Mod(inner) if inner.attrs.iter().any(is_cfg_test) => self.unit_tests(inner, module),
                _ => operators.visit_item_mut(item),
            }
        }
        self.mutants.extend(operators.mutants);
        fs::write(path, file.to_token_stream().to_string()).unwrap();
    }

    /// Makes the unit tests of a file callable as plain functions.
    fn unit_tests(&mut self, tests: &mut ItemMod, module: &TokenStream) {
        let name = &tests.ident;
        let module = quote!(#module::#name);
        let (_, items) =
            tests.content.as_mut().unwrap_or_else(|| panic!("{module} is a file: not supported"));
        items.iter_mut().for_each(|item| self.unit_test(item, &module));
        tests.attrs.retain(|attribute| !is_cfg_test(attribute));
        tests.vis = syn::parse_quote!(pub(crate));
    }

    fn unit_test(&mut self, item: &mut Item, module: &TokenStream) {
        if let Item::Fn(function) = item
            && function.attrs.iter().any(|attribute| attribute.path().is_ident("test"))
        {
            function.attrs.retain(|attribute| !attribute.path().is_ident("test"));
            function.vis = syn::parse_quote!(pub(crate));
            let name = &function.sig.ident;
            self.tests.push(quote!(#module::#name));
        }
        if let Item::Macro(inner) = item
            && inner.mac.path.is_ident("proptest")
        {
            let text = inner.mac.tokens.to_string().replace("# [test]", "# [inline]");
            // Proptest would store failures in the package's folder, which does not exist here.
            let config =
                quote!(proptest::test_runner::Config { failure_persistence: None, ..Default::default() });
            let tokens: TokenStream = text.parse().unwrap();
            let words: Vec<_> = tokens.clone().into_iter().collect();
            let names = words.windows(2).filter(|pair| pair[0].to_string() == "fn").map(|pair| &pair[1]);
            inner.mac.tokens = quote!(#![proptest_config(#config)] #tokens);
            *item = Item::Verbatim(quote!(#inner pub(crate) fn properties() { #(#names());* }));
            self.tests.push(quote!(#module::properties));
        }
    }
}

fn is_cfg_test(attribute: &Attribute) -> bool {
    matches!(&attribute.meta, Meta::List(list) if list.path.is_ident("cfg") && list.tokens.to_string() == "test")
}
