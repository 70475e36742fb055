//! The small changes (mutation operators), and the places where each can be applied.

use proc_macro2::Span;
use quote::ToTokens;
use std::mem;
use syn::spanned::Spanned;
use syn::visit_mut::{self, VisitMut};
use syn::{
    Attribute, BinOp, Block, Expr, ExprCall, ExprLit, ExprRepeat, GenericArgument, Ident, ImplItemConst, ImplItemFn,
    ItemConst, ItemFn, ItemStatic, Lit, Pat, ReturnType, Signature, Stmt, Type, UnOp, Variant, parse_quote,
};

/// Larger changes, each of which breaks a promise that the machines were designed to keep.
const PLANTED: &str = include_str!("../../planted.txt");

pub struct Mutant {
    pub file: String,
    pub line: usize,
    pub function: String,
    pub before: String,
    pub after: String,
    /// Whether it comes from `planted.txt`.
    pub is_planted: bool,
    /// The world of the simulation that shows it, if `planted.txt` names one.
    pub seed: Option<u64>,
}

/// A change of `planted.txt`.
#[derive(Clone)]
struct Planted {
    right: Expr,
    wrong: Expr,
    seed: Option<u64>,
}

/// Turns each change in one file into a branch.
pub struct Operators<'a> {
    file: &'a str,
    first: usize,
    function: String,
    pub mutants: Vec<Mutant>,
    planted: Vec<Planted>,
}

impl<'a> Operators<'a> {
    /// The first change of this file gets the number `before` + 1.
    pub fn new(file: &'a str, before: usize) -> Operators<'a> {
        let lines = PLANTED.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
        let planted = lines.filter_map(|line| {
            let (of, change) = line.split_once(": ")?;
            let (right, rest) = change.split_once("  ->  ")?;
            let (wrong, seed) = rest.split_once("  seed ").map_or((rest, None), |(wrong, seed)| (wrong, Some(seed)));
            let seed = seed.map(|seed| seed.parse().unwrap_or_else(|error| panic!("seed {seed}: {error}")));
            let parse = |text| syn::parse_str(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            (of == file).then(|| Planted { right: parse(right), wrong: parse(wrong), seed })
        });
        Operators { file, first: before, function: String::new(), mutants: Vec::new(), planted: planted.collect() }
    }

    /// Records a change and returns the condition under which it is active.
    fn note(&mut self, span: Span, after: String, is_planted: bool) -> Expr {
        let before = span.source_text().filter(|text| !text.is_empty());
        let before = before.expect("a place in the source");
        let start = span.start();
        let tidy = |text: String| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let (file, function) = (self.file.to_owned(), self.function.clone());
        let (before, after) = (tidy(before), tidy(after));
        self.mutants.push(Mutant { file, line: start.line, function, before, after, is_planted, seed: None });
        let number = self.first + self.mutants.len();
        parse_quote!(crate::mutation::is(#number))
    }

    /// Replaces an expression by another one.
    fn instead(&mut self, of: &Expr, other: &Expr, now: Expr, is_planted: bool) -> Expr {
        let is = self.note(of.span(), other.to_token_stream().to_string(), is_planted);
        parse_quote!((if #is { #other } else { #now }))
    }

    /// Negates a condition. `before` is its source before its parts were changed.
    fn turned(&mut self, before: &Expr, condition: &mut Expr) {
        match (before, condition) {
            (Expr::Let(_), _) => {}
            (Expr::Binary(before), Expr::Binary(binary))
                if matches!(before.op, BinOp::And(_)) && has_let(&before.left, &before.right) =>
            {
                self.turned(&before.left, &mut binary.left);
                self.turned(&before.right, &mut binary.right);
            }
            (before, plain) => {
                let is = self.note(before.span(), "turned round".to_owned(), false);
                let now = mem::replace(plain, Expr::PLACEHOLDER);
                *plain = parse_quote!(((#now) != #is));
            }
        }
    }

    fn others(&self, expression: &Expr) -> Vec<Expr> {
        match expression {
            Expr::Binary(binary) => {
                let (left, right) = (&binary.left, &binary.right);
                let others: Vec<BinOp> = match binary.op {
                    BinOp::Lt(_) => vec![parse_quote!(<=)],
                    BinOp::Le(_) => vec![parse_quote!(<)],
                    BinOp::Gt(_) => vec![parse_quote!(>=)],
                    BinOp::Ge(_) => vec![parse_quote!(>)],
                    BinOp::Eq(_) => vec![parse_quote!(!=)],
                    BinOp::Ne(_) => vec![parse_quote!(==)],
                    BinOp::And(_) if !has_let(left, right) => vec![parse_quote!(||)],
                    BinOp::Or(_) => vec![parse_quote!(&&)],
                    BinOp::Add(_) if !matches!(**right, Expr::Reference(_)) => {
                        vec![parse_quote!(-)]
                    } // not for text concatenation
                    BinOp::Sub(_) => vec![parse_quote!(+)],
                    BinOp::Mul(_) => vec![parse_quote!(/)],
                    BinOp::Div(_) => vec![parse_quote!(*)],
                    _ => vec![],
                };
                others.iter().map(|other| parse_quote!(#left #other #right)).collect()
            }
            Expr::Unary(unary) if matches!(unary.op, UnOp::Not(_)) => vec![(*unary.expr).clone()],
            Expr::Lit(ExprLit { lit: Lit::Bool(literal), .. }) => {
                let other = !literal.value;
                vec![parse_quote!(#other)]
            }
            Expr::Lit(ExprLit { lit: Lit::Int(_), .. }) => vec![parse_quote!(#expression + 1)],
            Expr::MethodCall(call) => {
                let other = match call.method.to_string().as_str() {
                    "min" => "max",
                    "max" => "min",
                    "any" => "all",
                    "all" => "any",
                    "is_some" => "is_none",
                    "is_none" => "is_some",
                    "is_ok" => "is_err",
                    "is_err" => "is_ok",
                    "is_some_and" => "is_none_or",
                    "is_none_or" => "is_some_and",
                    _ => return vec![],
                };
                let mut changed = call.clone();
                changed.method = Ident::new(other, call.method.span());
                vec![Expr::MethodCall(changed)]
            }
            _ => vec![],
        }
    }

    /// Makes a function return at once: nothing, or the simplest value of its type.
    fn body(&mut self, signature: &Signature, block: &mut Block) {
        if signature.constness.is_some() {
            return;
        }
        let output = match &signature.output {
            ReturnType::Default => "()".to_owned(),
            ReturnType::Type(_, output) => output.to_token_stream().to_string(),
        };
        let answers: Vec<Expr> = match output.as_str() {
            "()" => vec![parse_quote!(())],
            "bool" => vec![parse_quote!(true), parse_quote!(false)],
            option if option.starts_with("Option <") => vec![parse_quote!(None)],
            result if result.starts_with("Result < () ,") => vec![parse_quote!(Ok(()))],
            _ => vec![],
        };
        let mut first = Vec::new();
        for answer in answers {
            let text = format!("the function answers {}", answer.to_token_stream());
            let is = self.note(signature.span(), text, false);
            first.push(parse_quote!(if #is { return #answer; }));
        }
        visit_mut::visit_block_mut(self, block);
        block.stmts.splice(0..0, first);
    }
}

fn has_let(left: &Expr, right: &Expr) -> bool {
    let is_let = |expression: &Expr| match expression {
        Expr::Let(_) => true,
        Expr::Binary(binary) if matches!(binary.op, BinOp::And(_)) => has_let(&binary.left, &binary.right),
        _ => false,
    };
    is_let(left) || is_let(right)
}

/// Whether an expression has an effect apart from its value, so that removing the statement compiles.
fn acts(expression: &Expr) -> bool {
    match expression {
        Expr::MethodCall(_) | Expr::Call(_) | Expr::Assign(_) => true,
        Expr::Binary(binary) => {
            let text = binary.op.to_token_stream().to_string();
            text.ends_with('=') && !["==", "!=", "<=", ">="].contains(&text.as_str())
        }
        _ => false,
    }
}

impl VisitMut for Operators<'_> {
    fn visit_item_fn_mut(&mut self, function: &mut ItemFn) {
        self.function = function.sig.ident.to_string();
        self.body(&function.sig, &mut function.block);
    }

    fn visit_impl_item_fn_mut(&mut self, function: &mut ImplItemFn) {
        self.function = function.sig.ident.to_string();
        if self.function != "fmt" {
            self.body(&function.sig, &mut function.block);
        }
    }

    fn visit_stmt_mut(&mut self, statement: &mut Stmt) {
        let removed = match statement {
            Stmt::Expr(expression, Some(_)) if acts(expression) => Some(expression.span()),
            _ => None,
        };
        visit_mut::visit_stmt_mut(self, statement);
        if let Some(span) = removed {
            let is = self.note(span, "nothing".to_owned(), false);
            *statement = parse_quote!(if !#is { #statement });
        }
    }

    fn visit_expr_if_mut(&mut self, branch: &mut syn::ExprIf) {
        let before = branch.cond.clone();
        visit_mut::visit_expr_if_mut(self, branch);
        self.turned(&before, &mut branch.cond);
    }

    fn visit_arm_mut(&mut self, arm: &mut syn::Arm) {
        let before = arm.guard.clone();
        visit_mut::visit_arm_mut(self, arm);
        if let (Some((_, before)), Some((_, guard))) = (&before, &mut arm.guard) {
            self.turned(before, guard);
        }
    }

    fn visit_expr_mut(&mut self, expression: &mut Expr) {
        let before = expression.clone();
        let text = |expression: &Expr| expression.to_token_stream().to_string();
        visit_mut::visit_expr_mut(self, expression);
        for other in self.others(&before) {
            let now = mem::replace(expression, Expr::PLACEHOLDER);
            *expression = self.instead(&before, &other, now, false);
        }
        for Planted { right, wrong, seed } in self.planted.clone() {
            if text(&right) == text(&before) {
                let now = mem::replace(expression, Expr::PLACEHOLDER);
                *expression = self.instead(&before, &wrong, now, true);
                self.mutants.last_mut().expect("the planted one").seed = seed;
            }
        }
    }

    fn visit_expr_repeat_mut(&mut self, repeat: &mut ExprRepeat) {
        self.visit_expr_mut(&mut repeat.expr);
    }

    fn visit_expr_call_mut(&mut self, call: &mut ExprCall) {
        // The capacity of a collection changes nothing that a test could observe.
        let function = call.func.to_token_stream().to_string();
        if !function.ends_with("with_capacity") {
            visit_mut::visit_expr_call_mut(self, call);
        }
    }

    // Patterns, types and constants cannot depend on a number that is read at run time.
    fn visit_pat_mut(&mut self, _: &mut Pat) {}
    fn visit_type_mut(&mut self, _: &mut Type) {}
    fn visit_item_const_mut(&mut self, _: &mut ItemConst) {}
    fn visit_item_static_mut(&mut self, _: &mut ItemStatic) {}
    fn visit_impl_item_const_mut(&mut self, _: &mut ImplItemConst) {}
    fn visit_generic_argument_mut(&mut self, _: &mut GenericArgument) {}
    fn visit_variant_mut(&mut self, _: &mut Variant) {}
    fn visit_attribute_mut(&mut self, _: &mut Attribute) {}
}
