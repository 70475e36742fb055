//! Reads the files of `src/protocol` into one tree of modules, with the mutants of each file.

use crate::operators::{Mutant, Operators, is_of_feature};
use proc_macro2::TokenStream;
use quote::{ToTokens, format_ident, quote};
use std::path::{Path, PathBuf};
use std::{env, fs};
use syn::visit_mut::VisitMut;
use syn::{Attribute, Item, Meta};

const PROTOCOL: &str = "../../src/protocol";

/// This module is left unchanged: its content comes from macros.
const UNCHANGED: &str = "script";

#[derive(Default)]
struct Tree {
    mutants: Vec<Mutant>,
    /// The unit tests, by their paths in the crate.
    tests: Vec<TokenStream>,
}

/// Writes the protocol, the list of its mutants and the list of its unit tests.
pub fn write() {
    println!("cargo::rerun-if-changed={PROTOCOL}");
    let folder = PathBuf::from(env::var("CARGO_MANIFEST_DIR").unwrap()).join(PROTOCOL);
    let mut tree = Tree::default();
    let items = tree.file(&folder.join("mod.rs"), &folder, "mod.rs", &quote!(crate::protocol));
    let Tree { mutants, tests } = tree;
    let mutants = mutants.iter().map(|mutant| {
        let Mutant { file, line, function, before, after, is_planted } = mutant;
        quote! {
            Mutant { file: #file, line: #line, function: #function, before: #before, after: #after, is_planted: #is_planted }
        }
    });
    let text = quote! {
        #[allow(warnings, clippy::all)]
        mod protocol { #(#items)* }
        pub(crate) const MUTANTS: &[crate::mutation::Mutant] = {
            use crate::mutation::Mutant;
            &[#(#mutants),*]
        };
        pub(crate) const UNIT_TESTS: &[fn()] = &[#(#tests),*];
    };
    let out = PathBuf::from(env::var("OUT_DIR").unwrap()).join("protocol.rs");
    fs::write(out, text.to_string()).unwrap();
}

impl Tree {
    /// The items of a file and of the modules in it. `folder` contains the files of its child modules.
    fn file(&mut self, path: &Path, folder: &Path, name: &str, module: &TokenStream) -> Vec<Item> {
        let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let mut file = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let mut operators = Operators::new(name, self.mutants.len());
        let (tests, others): (Vec<Item>, Vec<Item>) = file.items.into_iter().partition(is_test);
        file.items = others;
        file.items.iter_mut().for_each(|item| operators.visit_item_mut(item));
        self.mutants.extend(operators.mutants);
        file.items.extend(tests);
        let items = file.items.into_iter().map(|item| self.item(item, folder, name, module));
        items.collect()
    }

    fn item(&mut self, item: Item, folder: &Path, parent: &str, module: &TokenStream) -> Item {
        let Item::Mod(mut inner) = item else {
            return item;
        };
        let name = inner.ident.clone();
        if name == UNCHANGED {
            let path = folder.join(format!("{name}.rs"));
            let path = path.to_str().unwrap();
            return syn::parse_quote!(#[path = #path] #inner);
        }
        let module = quote!(#module::#name);
        let is_test = is_test(&Item::Mod(inner.clone()));
        inner.attrs.retain(|attribute| {
            let is_of_file = ["cfg", "path"].map(|name| attribute.path().is_ident(name));
            is_of_file == [false, false] || is_of_feature(attribute)
        });
        let mut items = match inner.content.take() {
            Some((_, items)) => items,
            None => {
                let stem = parent.trim_end_matches("mod.rs").trim_end_matches(".rs");
                let own = match stem {
                    "" => format!("{name}.rs"),
                    stem => format!("{}/{name}.rs", stem.trim_end_matches('/')),
                };
                let path = folder.join(format!("{name}.rs"));
                match is_test {
                    true => syn::parse_file(&fs::read_to_string(path).unwrap()).unwrap().items,
                    false => self.file(&path, &folder.join(name.to_string()), &own, &module),
                }
            }
        };
        if is_test {
            items.iter_mut().for_each(|item| self.unit_test(item, &module));
        }
        inner.vis = syn::parse_quote!(pub(crate));
        inner.semi = None;
        inner.content = Some((Default::default(), items));
        Item::Mod(inner)
    }

    /// Makes a unit test callable as a plain function.
    fn unit_test(&mut self, item: &mut Item, module: &TokenStream) {
        if let Item::Fn(function) = item
            && function.attrs.iter().any(|attribute| attribute.path().is_ident("test"))
            && !function.attrs.iter().any(|attribute| attribute.path().is_ident("cfg"))
        {
            function.attrs.retain(|attribute| !attribute.path().is_ident("test"));
            function.vis = syn::parse_quote!(pub(crate));
            let name = &function.sig.ident;
            self.tests.push(quote!(#module::#name));
        }
        if let Item::Macro(inner) = item
            && inner.mac.path.is_ident("proptest")
        {
            let text = inner.mac.tokens.to_string().replace("# [test] fn", "# [inline] fn");
            // Proptest would store failures in the package's folder, which does not exist here.
            let config = quote!(proptest::test_runner::Config { failure_persistence: None, ..Default::default() });
            let tokens: TokenStream = text.parse().unwrap();
            inner.mac.tokens = quote!(#![proptest_config(#config)] #tokens);
            let names = text.split("# [inline] fn ").skip(1);
            let names = names.map(|name| format_ident!("{}", name.split(['(', ' ']).next().unwrap()));
            *item = Item::Verbatim(quote!(#inner pub(crate) fn properties() { #(#names());* }));
            self.tests.push(quote!(#module::properties));
        }
    }
}

fn is_test(item: &Item) -> bool {
    let is_cfg_test = |attribute: &Attribute| match &attribute.meta {
        Meta::List(list) => list.path.is_ident("cfg") && list.to_token_stream().to_string().contains("(test)"),
        _ => false,
    };
    matches!(item, Item::Mod(module) if module.attrs.iter().any(is_cfg_test))
}
