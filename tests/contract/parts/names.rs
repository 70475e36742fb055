//! The names in a Lua script, each with the variable that it stands for. It knows the part of Lua 5.1 that
//! the scripts use.

use std::collections::{BTreeMap, BTreeSet};

/// What a text does with a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Declares,
    Reads,
    Writes,
}

/// One occurrence of a name.
#[derive(Debug)]
pub struct Use {
    pub name: String,
    /// The number of a local variable; `None`: a global one.
    pub variable: Option<usize>,
    pub action: Action,
    /// From 1.
    pub line: usize,
}

/// A function of a script.
#[derive(Debug, Default)]
pub struct Function {
    /// The line of its first word, from 1.
    pub line: usize,
    /// The local variables of functions around it that it uses, or that a function in it uses: its upvalues.
    pub upvalues: BTreeSet<usize>,
}

/// All names and functions of a script. The first function is the script itself.
#[derive(Debug, Default)]
pub struct Names {
    pub uses: Vec<Use>,
    pub functions: Vec<Function>,
}

/// # Panics
/// If the text contains something that the scripts do not use, such as `repeat`.
pub fn names_of(text: &str) -> Names {
    let mut parser = Parser { tokens: tokens_of(text), ..Parser::default() };
    parser.tokens.push((String::new(), text.lines().count()));
    parser.names.functions.push(Function { line: 1, ..Function::default() });
    parser.open_functions.push(0);
    parser.block();
    assert!(parser.at + 1 == parser.tokens.len(), "line {}: not the end of a script", parser.line());
    parser.names
}

/// The words and signs of a text, with their lines. A string is shortened to its quote.
fn tokens_of(text: &str) -> Vec<(String, usize)> {
    let mut tokens = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let mut rest = line.trim_start();
        while !rest.is_empty() && !rest.starts_with("--") {
            let (token, length) = first_token(rest);
            tokens.push((token, number + 1));
            rest = rest[length..].trim_start();
        }
    }
    tokens
}

/// The token at the start of a text, and its length.
fn first_token(text: &str) -> (String, usize) {
    let first = text.chars().next().unwrap_or_default();
    if first.is_ascii_alphanumeric() || first == '_' {
        let length = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
        return (text[..length].to_owned(), length);
    }
    if first == '\'' || first == '"' {
        let mut escaped = false;
        let end = text[1..].find(|c| {
            let ends = c == first && !escaped;
            escaped = c == '\\' && !escaped;
            ends
        });
        return ("'".to_owned(), end.unwrap_or_else(|| panic!("a string without an end: {text}")) + 2);
    }
    let signs = ["...", "..", "==", "~=", "<=", ">="];
    let sign = signs.into_iter().find(|sign| text.starts_with(sign)).unwrap_or(&text[..first.len_utf8()]);
    (sign.to_owned(), sign.len())
}

fn is_name(token: &str) -> bool {
    const WORDS: [&str; 21] = [
        "and", "break", "do", "else", "elseif", "end", "false", "for", "function", "if", "in", "local",
        "nil", "not", "or", "repeat", "return", "then", "true", "until", "while",
    ];
    token.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && !WORDS.contains(&token)
}

#[derive(Default)]
struct Parser {
    tokens: Vec<(String, usize)>,
    at: usize,
    names: Names,
    /// The variables of each open block, and the number of open functions where each was declared.
    blocks: Vec<BTreeMap<String, (usize, usize)>>,
    variables: usize,
    /// Places in `names.functions`.
    open_functions: Vec<usize>,
}

impl Parser {
    fn token(&self) -> &str {
        &self.tokens[self.at].0
    }

    fn line(&self) -> usize {
        self.tokens[self.at].1
    }

    /// Steps over this token, if it is next.
    fn skip(&mut self, token: &str) -> bool {
        let is_next = self.token() == token;
        self.at += usize::from(is_next);
        is_next
    }

    fn expect(&mut self, token: &str) {
        assert!(self.skip(token), "line {}: {} instead of {token}", self.line(), self.token());
    }

    fn name(&mut self) -> (String, usize) {
        assert!(is_name(self.token()), "line {}: {} is no name", self.line(), self.token());
        self.at += 1;
        self.tokens[self.at - 1].clone()
    }

    fn name_list(&mut self) -> Vec<(String, usize)> {
        let mut list = vec![self.name()];
        while self.skip(",") {
            list.push(self.name());
        }
        list
    }

    fn declare(&mut self, (name, line): (String, usize)) {
        self.variables += 1;
        let block = self.blocks.last_mut().unwrap();
        block.insert(name.clone(), (self.variables, self.open_functions.len()));
        self.names.uses.push(Use { name, variable: Some(self.variables), action: Action::Declares, line });
    }

    fn uses(&mut self, (name, line): (String, usize), action: Action) {
        let found = self.blocks.iter().rev().find_map(|block| block.get(&name)).copied();
        if let Some((variable, depth)) = found {
            for function in &self.open_functions[depth..] {
                self.names.functions[*function].upvalues.insert(variable);
            }
        }
        self.names.uses.push(Use { name, variable: found.map(|(variable, _)| variable), action, line });
    }

    /// The statements of a block in which these names are declared, up to the word that ends it.
    fn block_with(&mut self, names: Vec<(String, usize)>) {
        self.blocks.push(BTreeMap::new());
        names.into_iter().for_each(|name| self.declare(name));
        while !["end", "else", "elseif", ""].contains(&self.token()) {
            self.statement();
        }
        self.blocks.pop();
    }

    fn block(&mut self) {
        self.block_with(Vec::new());
    }

    fn statement(&mut self) {
        match self.token().to_owned().as_str() {
            ";" | "break" => self.at += 1,
            "if" => {
                while self.skip("if") || self.skip("elseif") {
                    self.expression();
                    self.expect("then");
                    self.block();
                }
                if self.skip("else") {
                    self.block();
                }
                self.expect("end");
            }
            "while" => {
                self.at += 1;
                self.expression();
                self.loop_with(Vec::new());
            }
            "for" => {
                self.at += 1;
                let names = self.name_list();
                assert!(self.skip("=") || self.skip("in"), "line {}", self.line());
                self.expressions();
                self.loop_with(names);
            }
            "do" => self.loop_with(Vec::new()),
            "local" => self.local(),
            "function" => {
                let line = self.line();
                self.at += 1;
                let name = self.name();
                let is_field = self.token() == ".";
                self.uses(name, if is_field { Action::Reads } else { Action::Writes });
                while self.skip(".") {
                    self.name();
                }
                self.function(line);
            }
            "return" => {
                self.at += 1;
                if !["end", "else", "elseif", ""].contains(&self.token()) {
                    self.expressions();
                }
            }
            _ => self.assignment_or_call(),
        }
    }

    fn loop_with(&mut self, names: Vec<(String, usize)>) {
        self.expect("do");
        self.block_with(names);
        self.expect("end");
    }

    fn local(&mut self) {
        self.at += 1;
        let line = self.line();
        if self.skip("function") {
            let name = self.name();
            self.declare(name);
            return self.function(line);
        }
        let names = self.name_list();
        if self.skip("=") {
            self.expressions();
        }
        names.into_iter().for_each(|name| self.declare(name)); // not visible in its own expressions
    }

    fn assignment_or_call(&mut self) {
        let mut targets = vec![self.suffixed()];
        while self.skip(",") {
            targets.push(self.suffixed());
        }
        if self.skip("=") {
            self.expressions();
        }
        targets.into_iter().flatten().for_each(|name| self.uses(name, Action::Writes));
    }

    /// Parameters and block of a function.
    fn function(&mut self, line: usize) {
        self.expect("(");
        let mut parameters = Vec::new();
        while !self.skip(")") {
            if !self.skip("...") && !self.skip(",") {
                parameters.push(self.name());
            }
        }
        self.open_functions.push(self.names.functions.len());
        self.names.functions.push(Function { line, ..Function::default() });
        self.block_with(parameters);
        self.open_functions.pop();
        self.expect("end");
    }

    fn expressions(&mut self) {
        self.expression();
        while self.skip(",") {
            self.expression();
        }
    }

    fn expression(&mut self) {
        while ["not", "-", "#"].contains(&self.token()) {
            self.at += 1;
        }
        self.operand();
        let operators = ["+", "-", "*", "/", "%", "^", "..", "==", "~=", "<", "<=", ">", ">=", "and", "or"];
        if operators.contains(&self.token()) {
            self.at += 1;
            self.expression();
        }
    }

    fn operand(&mut self) {
        let line = self.line();
        if self.token() == "{" {
            self.table();
        } else if self.skip("function") {
            self.function(line);
        } else if is_name(self.token()) || self.token() == "(" {
            if let Some(name) = self.suffixed() {
                self.uses(name, Action::Reads);
            }
        } else {
            self.number_or_word();
        }
    }

    /// A number with its decimals, a string, `...`, nil, true or false.
    fn number_or_word(&mut self) {
        self.at += 1;
        if self.tokens[self.at - 1].0.starts_with(|c: char| c.is_ascii_digit()) && self.skip(".") {
            self.at += 1;
        }
    }

    /// A name or an expression in parentheses, with the fields and calls that follow. Returns a name that
    /// nothing follows.
    fn suffixed(&mut self) -> Option<(String, usize)> {
        let mut plain = None;
        if self.skip("(") {
            self.expression();
            self.expect(")");
        } else {
            plain = Some(self.name());
        }
        while [".", "[", "(", "{", "'"].contains(&self.token()) {
            if let Some(name) = plain.take() {
                self.uses(name, Action::Reads);
            }
            if self.skip(".") {
                self.name();
            } else if self.skip("[") {
                self.expression();
                self.expect("]");
            } else if self.token() == "{" {
                self.table();
            } else if !self.skip("'") {
                self.at += 1;
                if !self.skip(")") {
                    self.expressions();
                    self.expect(")");
                }
            }
        }
        plain
    }

    fn table(&mut self) {
        self.expect("{");
        while !self.skip("}") {
            if self.skip("[") {
                self.expression();
                self.expect("]");
                self.expect("=");
            } else if is_name(self.token()) && self.tokens[self.at + 1].0 == "=" {
                self.at += 2;
            }
            self.expression();
            let _ = self.skip(",") || self.skip(";");
        }
    }
}
