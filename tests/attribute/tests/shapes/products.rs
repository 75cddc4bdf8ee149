//! Shapes made of combinations: the context of a function, its kind, its receivers, arguments and return types.

use std::fmt::Write;

use super::corpus::Source;

/// The context of a function.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Context {
    Free,
    Inherent,
    TraitImpl,
}

/// The kind of a function.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Sync,
    Async,
    /// Returns a boxed future.
    Boxed,
    /// Returns `impl Future`.
    Opaque,
    /// Uses `#[async_trait]`.
    AsyncTrait,
}

/// A parameter: its generics, its pattern and type, the caller's argument, and the number that the body computes from
/// it. `&~` is a reference with a lifetime that is named where necessary.
struct Parameter {
    name: &'static str,
    generics: &'static str,
    pattern: &'static str,
    ty: &'static str,
    given: &'static str,
    used: &'static str,
}

/// A return type: the last expression of the body, and the option that converts an error.
struct Return {
    name: &'static str,
    ty: &'static str,
    end: &'static str,
    or_else: &'static str,
}

const CONTEXTS: [(&str, Context); 3] = [
    ("free", Context::Free),
    ("inherent", Context::Inherent),
    ("trait_impl", Context::TraitImpl),
];

const WAYS: [(&str, Way); 5] = [
    ("sync", Way::Sync),
    ("async", Way::Async),
    ("boxed", Way::Boxed),
    ("opaque", Way::Opaque),
    ("async_trait", Way::AsyncTrait),
];

/// A receiver: its name, its declaration, and the caller's expression.
#[rustfmt::skip]
const RECEIVERS: [(&str, &str, &str); 10] = [
    ("associated", "", "Shop::"),
    ("shared", "&~self", "Shop::new()."),
    ("mutable", "&~mut self", "Shop::new()."),
    ("owned", "self", "Shop::new()."),
    ("owned_mut", "mut self", "Shop::new()."),
    ("boxed_self", "self: Box<Self>", "Box::new(Shop::new())."),
    ("counted", "self: Arc<Self>", "Arc::new(Shop::new())."),
    ("counted_here", "self: Rc<Self>", "Rc::new(Shop::new())."),
    ("counted_ref", "self: &~Arc<Self>", "Arc::new(Shop::new())."),
    ("pinned", "self: Pin<&~mut Self>", "Pin::new(&mut Shop::new())."),
];

const fn parameter(
    name: &'static str,
    generics: &'static str,
    [pattern, ty]: [&'static str; 2],
    given: &'static str,
    used: &'static str,
) -> Parameter {
    Parameter {
        name,
        generics,
        pattern,
        ty,
        given,
        used,
    }
}

#[rustfmt::skip]
const PARAMETERS: [Parameter; 24] = [
    parameter("by_value", "", ["id", "u64"], "7", "id"),
    parameter("text", "", ["name", "&~str"], "\"seven\"", "u64::from(name.is_empty())"),
    parameter("nothing", "", ["", ""], "", "1"),
    parameter("by_mut", "", ["mut id", "u64"], "7", "{ id += 1; id }"),
    parameter("owned", "", ["name", "String"], "\"seven\".to_owned()", "u64::from(name.is_empty())"),
    parameter("unused", "", ["id", "u64"], "7", "1"),
    parameter("unused_owner", "", ["noisy", "Noisy"], "Noisy(\"argument\")", "1"),
    parameter("nameless", "", ["_", "Noisy"], "Noisy(\"argument\")", "1"),
    parameter("underscore", "", ["_noisy", "Noisy"], "Noisy(\"argument\")", "1"),
    parameter("used_underscore", "", ["_id", "u64"], "7", "_id"),
    parameter("tuple", "", ["(left, right)", "(u64, u64)"], "(3, 4)", "left + right"),
    parameter("half_tuple", "", ["(mut left, _)", "(u64, Noisy)"], "(3, Noisy(\"argument\"))", "{ left += 1; left }"),
    parameter("structure", "", ["Order { id, noisy }", "Order"], "Order::new()", "{ drop(noisy); id }"),
    parameter("rest", "", ["Order { id, .. }", "Order"], "Order::new()", "id"),
    parameter("reference", "", ["&id", "&~u64"], "&7", "id"),
    parameter("by_ref", "", ["ref order", "Order"], "Order::new()", "order.id"),
    parameter("by_ref_mut", "", ["ref mut order", "Order"], "Order::new()", "{ order.id += 1; order.id }"),
    parameter("list", "", ["list", "&~mut Vec<u64>"], "&mut vec![1]", "{ list.push(1); list.iter().sum::<u64>() }"),
    parameter("closure", "", ["double", "impl Fn(u64) -> u64 + Send + Sync"], "|id| 2 * id", "double(7)"),
    parameter("generic", "T: Into<u64> + Send + Sync + Clone", ["id", "T"], "7_u32", "id.into()"),
    parameter("unsized_generic", "T: AsRef<str> + Send + Sync + ?Sized", ["name", "&~T"], "\"seven\"", "u64::from(name.as_ref().is_empty())"),
    parameter("constant", "const N: usize", ["list", "[u64; N]"], "[1, 2, 3]", "list.iter().sum::<u64>()"),
    parameter("two_owners", "", ["one", "Noisy, two: Noisy"], "Noisy(\"one\"), Noisy(\"two\")", "{ let _three = Noisy(\"three\"); drop(one); say(\"body\"); 1 }"),
    parameter("locked_cell", "", ["cell", "Arc<Mutex<u64>>"], "Arc::new(Mutex::new(7))", "*cell.lock().unwrap()"),
];

const fn returns(
    name: &'static str,
    ty: &'static str,
    end: &'static str,
    or_else: &'static str,
) -> Return {
    Return {
        name,
        ty,
        end,
        or_else,
    }
}

#[rustfmt::skip]
const RETURNS: [Return; 18] = [
    returns("result", "Result<u64, Error>", "Ok(TOTAL)", ""),
    returns("bound", "Result<u64, Error>", "let total = TOTAL; Ok(total)", ""),
    returns("early", "Result<u64, Error>", "if TOTAL > 100 { return Err(Error::Other(\"many\")); } Ok(1)", ""),
    returns("question", "Result<u64, Error>", "let total = Ok::<u64, Error>(TOTAL)?; Ok(total)", ""),
    returns("converted", "Result<u64, Error>", "let more: u64 = \"5\".parse()?; Ok(TOTAL + more)", ""),
    returns("alias", "Outcome<u64>", "Ok(TOTAL)", ""),
    returns("lock_error", "Result<u64, LockError>", "Ok(TOTAL)", ""),
    returns("any_error", "Result<u64, Box<dyn std::error::Error + Send + Sync>>", "if TOTAL > 100 { Err(\"many\")?; } Ok(1)", ""),
    returns("any_error_here", "Result<u64, Box<dyn std::error::Error>>", "if TOTAL > 100 { return Err(Box::new(Error::Other(\"many\"))); } Ok(1)", ""),
    returns("infallible", "Result<std::convert::Infallible, Error>", "let _ = TOTAL; Err(Error::Other(\"never\"))", ""),
    returns("number", "u64", "TOTAL", "|_| 0"),
    returns("unit", "()", "drop(TOTAL)", "|_| ()"),
    returns("nothing", "", "drop(TOTAL);", "drop"),
    returns("option", "Option<u64>", "Some(TOTAL)", "|_| None"),
    returns("dynamic", "Box<dyn std::fmt::Debug + Send>", "Box::new(TOTAL)", "|error| Box::new(error)"),
    returns("static_slice", "&'static [u64]", "if TOTAL > 100 { &[1] } else { &[1, 2] }", "|_| &[]"),
    returns("hidden", "Result<impl std::fmt::Debug, Error>", "Ok(TOTAL)", ""),
    returns("dynamic_inside", "Result<Box<dyn std::fmt::Debug + Send>, Error>", "Ok(Box::new(TOTAL))", ""),
];

/// Builds the files, one for each context and kind.
pub(crate) fn sources() -> Vec<Source> {
    let mut sources = Vec::new();
    for (context_name, context) in CONTEXTS {
        for (way_name, way) in WAYS {
            let in_trait = context == Context::TraitImpl;
            // Before edition 2024 and in traits, an opaque type needs an explicit capture.
            if (way == Way::AsyncTrait && !in_trait) || (way == Way::Opaque && in_trait) {
                continue;
            }
            let mut source = Source {
                name: format!("product_{context_name}_{way_name}"),
                text: HEAD.to_owned(),
            };
            let mut runs = String::new();
            for (receiver, parameter, ret) in combinations(context, way) {
                let shape = Shape {
                    context,
                    way,
                    receiver,
                    parameter,
                    ret,
                };
                if let Some(text) = shape.module() {
                    source.text += &text;
                    let _ = writeln!(runs, "    {}::run(runs);", shape.name());
                }
            }
            let _ = write!(source.text, "pub fn runs(runs: &mut Runs) {{\n{runs}}}\n");
            sources.push(source);
        }
    }
    sources
}

const HEAD: &str = "\
//@editions 2021
#![allow(clippy::wildcard_imports)]

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use crate::support::*;

pub struct Order {
    id: u64,
    noisy: Noisy,
}

impl Order {
    fn new() -> Self {
        Order { id: 7, noisy: Noisy(\"argument\") }
    }
}

";

const SHOP: &str = "\
#[derive(Clone, Copy, Debug)]
pub struct Shop { base: u64 }
impl Shop { fn new() -> Self { Shop { base: 5 } } }
";

/// Returns the combinations. Free functions and async-trait functions get all parameters and all return types.
/// Methods get all receivers. All others get a sample of the three.
fn combinations(context: Context, way: Way) -> Vec<(usize, &'static Parameter, &'static Return)> {
    let usual = usize::from(context != Context::Free);
    let mut all: Vec<(usize, &Parameter, &Return)> = Vec::new();
    if context == Context::Free || way == Way::AsyncTrait {
        all.extend(
            PARAMETERS
                .iter()
                .map(|parameter| (usual, parameter, &RETURNS[1])),
        );
        all.extend(RETURNS.iter().map(|ret| (usual, &PARAMETERS[0], ret)));
    }
    if context != Context::Free {
        all.extend((0..RECEIVERS.len()).map(|receiver| (receiver, &PARAMETERS[1], &RETURNS[0])));
    }
    let few = PARAMETERS
        .iter()
        .step_by(3)
        .zip(RETURNS.iter().step_by(2).cycle());
    all.extend(few.enumerate().map(|(index, (parameter, ret))| {
        let receiver = if context == Context::Free {
            0
        } else {
            index % RECEIVERS.len()
        };
        (receiver, parameter, ret)
    }));
    all.sort_by_key(|(receiver, parameter, ret)| (*receiver, parameter.name, ret.name));
    all.dedup_by_key(|(receiver, parameter, ret)| (*receiver, parameter.name, ret.name));
    all
}

struct Shape {
    context: Context,
    way: Way,
    receiver: usize,
    parameter: &'static Parameter,
    ret: &'static Return,
}

impl Shape {
    fn name(&self) -> String {
        let receiver = match self.context {
            Context::Free => "",
            _ => RECEIVERS[self.receiver].0,
        };
        let name = format!("{receiver}_{}_{}", self.parameter.name, self.ret.name);
        name.trim_start_matches('_').to_owned()
    }

    /// Returns the shape in a module of its own, unless Rust has no such function.
    fn module(&self) -> Option<String> {
        let function = self.function()?;
        let around = match self.context {
            Context::Free => function,
            Context::Inherent => format!("{SHOP}impl Shop {{\n{function}}}\n"),
            Context::TraitImpl => {
                let attribute = match self.way {
                    Way::AsyncTrait => "#[async_trait::async_trait]\n",
                    _ => "",
                };
                // Declarations of a trait have no patterns.
                let pattern = match self.parameter.pattern {
                    "" => "",
                    _ => "value",
                };
                let declared = self.signature(pattern)?.replace("(mut self", "(self");
                format!(
                    "{SHOP}{attribute}pub trait Sells: Sized {{\n{declared};\n}}\n{attribute}impl Sells for Shop {{\n{function}}}\n"
                )
            }
        };
        let (name, run) = (self.name(), self.run());
        Some(format!(
            "pub mod {name} {{\nuse super::*;\n{}{run}}}\n\n",
            indent(&around)
        ))
    }

    fn is_block(&self) -> bool {
        matches!(self.way, Way::Boxed | Way::Opaque)
    }

    fn with_lifetime(&self, text: &str) -> String {
        text.replace("&~", if self.is_block() { "&'a " } else { "&" })
    }

    /// `async fn call(&self, id: u64) -> Result<u64, Error>`
    fn signature(&self, pattern: &str) -> Option<String> {
        let receiver = match self.context {
            Context::Free => "",
            _ => RECEIVERS[self.receiver].1,
        };
        let opaque = self.ret.ty.contains("impl ") || self.parameter.ty.contains("impl ");
        if opaque && matches!(self.way, Way::Boxed | Way::AsyncTrait) {
            return None;
        }
        // The block's type is inferred too late here, and the block cannot use the borrows of a `ref` pattern.
        let is_coerced = [
            "any_error_here",
            "dynamic",
            "dynamic_inside",
            "static_slice",
        ]
        .contains(&self.ret.name);
        if self.is_block() && (is_coerced || self.parameter.pattern.starts_with("ref ")) {
            return None;
        }
        // The future contains the error, so it is `Send` only with a `Send` error.
        if self.way == Way::AsyncTrait && self.ret.name == "any_error_here" {
            return None;
        }
        if receiver.contains("Rc<") && !matches!(self.way, Way::Sync | Way::Async) {
            return None;
        }
        let output = match (self.ret.ty, self.is_block()) {
            ("", true) => "()",
            (ty, _) => ty,
        };
        let written = match self.way {
            Way::Boxed => format!(" -> Pin<Box<dyn Future<Output = {output}> + Send + 'a>>"),
            Way::Opaque => format!(" -> impl Future<Output = {output}> + 'a"),
            _ if output.is_empty() => String::new(),
            _ => format!(" -> {output}"),
        };
        let asynchronous = match self.way {
            Way::Async | Way::AsyncTrait => "async ",
            _ => "",
        };
        let outlives = if self.is_block() && !self.parameter.generics.starts_with("const") {
            " + 'a"
        } else {
            ""
        };
        let lifetime = if self.is_block() { "'a" } else { "" };
        let generics = match self.parameter.generics {
            "" => String::new(),
            generics => format!("{generics}{outlives}"),
        };
        let generics = match listed([lifetime, &generics]) {
            none if none.is_empty() => none,
            some => format!("<{some}>"),
        };
        let mut ty = self.with_lifetime(self.parameter.ty);
        if self.is_block() {
            ty = ty.replace("Send + Sync", "Send + Sync + 'a");
        }
        let parameter = match pattern {
            "" => String::new(),
            pattern => format!("{pattern}: {ty}"),
        };
        let inside = listed([&self.with_lifetime(receiver), &parameter]);
        let public = match self.context {
            Context::TraitImpl => "",
            _ => "pub ",
        };
        Some(format!(
            "{public}{asynchronous}fn call{generics}({inside}){written}"
        ))
    }

    fn function(&self) -> Option<String> {
        let signature = self.signature(self.parameter.pattern)?;
        let mut total = self.parameter.used.to_owned();
        if self.context != Context::Free && self.receiver > 0 {
            total = format!("self.base + {total}");
            if RECEIVERS[self.receiver].1 == "mut self" {
                total = format!("{{ self.base += 1; {total} }}");
            }
        }
        if self.ret.end.contains("TOTAL >") {
            total = format!("({total})");
        }
        let end = self.ret.end.replace("TOTAL", &total);
        let end = end.replace("; ", ";\n    ");
        let body = match self.way {
            Way::Sync => format!("    say(\"begin\");\n    {end}\n"),
            Way::Async | Way::AsyncTrait => format!("    pause().await;\n    {end}\n"),
            Way::Boxed => {
                format!("    Box::pin(async move {{\n    pause().await;\n    {end}\n    }})\n")
            }
            Way::Opaque => format!("    async move {{\n    pause().await;\n    {end}\n    }}\n"),
        };
        let or_else = match self.ret.or_else {
            "" => String::new(),
            or_else => format!(", or_else = {or_else}"),
        };
        Some(format!(
            "//@ key = \"k\"{or_else}\n{signature} {{\n{body}}}\n"
        ))
    }

    fn run(&self) -> String {
        let (_, declared, receiver) = match self.context {
            Context::Free => ("", "", ""),
            _ => RECEIVERS[self.receiver],
        };
        let (name, given) = (self.name(), self.parameter.given);
        let mut call = format!("{receiver}call({given})");
        let is_owned = !format!("{declared}{}", self.parameter.ty).contains('&');
        if self.way != Way::Sync && is_owned {
            call = format!("assert_static({call})");
        }
        let recorded = match self.way {
            Way::Sync => format!("runs.value(\"{name}\", {call})"),
            _ => format!("run!(runs, \"{name}\", {call})"),
        };
        format!("    pub fn run(runs: &mut Runs) {{\n        {recorded};\n    }}\n")
    }
}

/// Joins the parts that are not empty.
fn listed(parts: [&str; 2]) -> String {
    let parts = parts.into_iter().filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join(", ")
}

fn indent(text: &str) -> String {
    text.lines().fold(String::new(), |indented, line| {
        indented + "    " + line + "\n"
    })
}
