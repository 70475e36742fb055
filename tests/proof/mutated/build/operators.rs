//! The small changes (mutation operators), and the places where each can be applied.

use proc_macro2::Span;
use quote::ToTokens;
use std::mem;
use syn::spanned::Spanned;
use syn::visit_mut::{self, VisitMut};
use syn::{
    Attribute, BinOp, Block, Expr, ExprCall, ExprLit, ExprRepeat, GenericArgument, Ident, ImplItemConst,
    ImplItemFn, ItemConst, ItemFn, ItemStatic, Lit, Pat, ReturnType, Signature, Stmt, Type, UnOp, Variant,
    parse_quote,
};

pub struct Mutant {
    pub file: String,
    pub line: usize,
    pub function: String,
    pub before: String,
    pub after: String,
    /// Which kind of change it is, and which one of this kind in the function, from 1.
    pub kind: String,
    pub ordinal: usize,
}

/// Turns each change in one file into a branch.
pub struct Operators<'a> {
    file: &'a str,
    first: usize,
    function: String,
    pub mutants: Vec<Mutant>,
}

impl<'a> Operators<'a> {
    /// The first change of this file gets the number `before` + 1.
    pub fn new(file: &'a str, before: usize) -> Operators<'a> {
        Operators { file, first: before, function: String::new(), mutants: Vec::new() }
    }

    /// Records a change and returns the condition under which it is active.
    fn note(&mut self, span: Span, after: String, kind: &str) -> Expr {
        let before = span.source_text().filter(|text| !text.is_empty());
        let before = before.expect("a place in the source");
        let start = span.start();
        let tidy = |text: String| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let (file, function) = (self.file.to_owned(), self.function.clone());
        let (before, after) = (tidy(before), tidy(after));
        let is_alike = |mutant: &&Mutant| mutant.function == function && mutant.kind == kind;
        let ordinal = self.mutants.iter().filter(is_alike).count() + 1;
        let (line, kind) = (start.line, kind.to_owned());
        self.mutants.push(Mutant { file, line, function, before, after, kind, ordinal });
        let number = self.first + self.mutants.len();
        parse_quote!(crate::mutation::is(#number))
    }

    /// Replaces an expression by another one.
    fn instead(&mut self, of: &Expr, other: &Expr, now: Expr, kind: &str) -> Expr {
        let is = self.note(of.span(), other.to_token_stream().to_string(), kind);
        parse_quote!((if #is { #other } else { #now }))
    }

    /// Negates a condition. `before` is its source before its parts were changed.
    fn turned(&mut self, before: &Expr, condition: &mut Expr) {
        match (before, condition) {
            (Expr::Let(_), _) => {}
            (before, _) if has_fault(before) => {}
            (Expr::Binary(before), Expr::Binary(binary))
                if matches!(before.op, BinOp::And(_)) && has_let(&before.left, &before.right) =>
            {
                self.turned(&before.left, &mut binary.left);
                self.turned(&before.right, &mut binary.right);
            }
            (before, plain) => {
                let is = self.note(before.span(), "turned round".to_owned(), "a condition is turned round");
                let now = mem::replace(plain, Expr::PLACEHOLDER);
                *plain = parse_quote!(((#now) != #is));
            }
        }
    }

    /// The changes of an expression, each with its kind.
    fn others(&self, expression: &Expr) -> Vec<(Expr, String)> {
        let becomes = |from: &str, to: &str| format!("`{from}` becomes `{to}`");
        match expression {
            Expr::Binary(binary) => {
                let (left, right) = (&binary.left, &binary.right);
                let other: BinOp = match binary.op {
                    BinOp::Lt(_) => parse_quote!(<=),
                    BinOp::Le(_) => parse_quote!(<),
                    BinOp::Gt(_) => parse_quote!(>=),
                    BinOp::Ge(_) => parse_quote!(>),
                    BinOp::Eq(_) => parse_quote!(!=),
                    BinOp::Ne(_) => parse_quote!(==),
                    BinOp::And(_) if !has_let(left, right) => parse_quote!(||),
                    BinOp::Or(_) => parse_quote!(&&),
                    BinOp::Add(_) if !matches!(**right, Expr::Reference(_)) => parse_quote!(-), // not of texts
                    BinOp::Sub(_) => parse_quote!(+),
                    BinOp::Mul(_) => parse_quote!(/),
                    BinOp::Div(_) => parse_quote!(*),
                    _ => return vec![],
                };
                let kind =
                    becomes(&binary.op.to_token_stream().to_string(), &other.to_token_stream().to_string());
                vec![(parse_quote!(#left #other #right), kind)]
            }
            Expr::Unary(unary) if matches!(unary.op, UnOp::Not(_)) => {
                vec![((*unary.expr).clone(), "`!` is left out".to_owned())]
            }
            Expr::Lit(ExprLit { lit: Lit::Bool(literal), .. }) => {
                let other = !literal.value;
                vec![(parse_quote!(#other), becomes(&literal.value.to_string(), &other.to_string()))]
            }
            Expr::Lit(ExprLit { lit: Lit::Int(_), .. }) => {
                vec![(parse_quote!(#expression + 1), "a number is one higher".to_owned())]
            }
            Expr::MethodCall(call) => {
                let method = call.method.to_string();
                let other = match method.as_str() {
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
                vec![(Expr::MethodCall(changed), becomes(&method, other))]
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
            let text = format!("it answers {}", answer.to_token_stream());
            let is = self.note(signature.span(), text.clone(), &text);
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

/// Whether this is the point of a planted fault, or the opposite of one.
fn has_fault(expression: &Expr) -> bool {
    match expression {
        Expr::Macro(point) => point.mac.path.is_ident("fault"),
        Expr::Unary(unary) => has_fault(&unary.expr),
        _ => false,
    }
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
            let is = self.note(span, "nothing".to_owned(), "a statement is left out");
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
        if has_fault(expression) {
            return; // only a planted fault changes it
        }
        let before = expression.clone();
        visit_mut::visit_expr_mut(self, expression);
        for (other, kind) in self.others(&before) {
            let now = mem::replace(expression, Expr::PLACEHOLDER);
            *expression = self.instead(&before, &other, now, &kind);
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
