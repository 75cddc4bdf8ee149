//! Shapes made of combinations: the context of a function, its kind, its receivers, arguments and return types.

use std::fmt::Write;

use super::corpus::Source;

/// The context of a function.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Context {
    Free,
    Inherent,
    GenericImpl,
    TraitDefault,
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

/// A parameter: its declaration, the caller's argument, and the number that the body computes from it. `&~` is a
/// reference with a lifetime that is named where necessary.
struct Parameter {
    name: &'static str,
    generics: &'static str,
    declared: &'static str,
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

const CONTEXTS: [(&str, Context); 5] = [
    ("free", Context::Free),
    ("inherent", Context::Inherent),
    ("generic_impl", Context::GenericImpl),
    ("trait_default", Context::TraitDefault),
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
    (
        "pinned",
        "self: Pin<&~mut Self>",
        "Pin::new(&mut Shop::new()).",
    ),
];

const fn parameter(
    name: &'static str,
    generics: &'static str,
    declared: &'static str,
    given: &'static str,
    used: &'static str,
) -> Parameter {
    Parameter {
        name,
        generics,
        declared,
        given,
        used,
    }
}

const PARAMETERS: [Parameter; 29] = [
    parameter("nothing", "", "", "", "1"),
    parameter("by_value", "", "id: u64", "7", "id"),
    parameter("by_mut", "", "mut id: u64", "7", "{ id += 1; id }"),
    parameter(
        "text",
        "",
        "name: &~str",
        "\"seven\"",
        "u64::from(name.is_empty())",
    ),
    parameter(
        "owned",
        "",
        "name: String",
        "\"seven\".to_owned()",
        "u64::from(name.is_empty())",
    ),
    parameter("unused", "", "id: u64", "7", "1"),
    parameter(
        "unused_owner",
        "",
        "noisy: Noisy",
        "Noisy(\"argument\")",
        "1",
    ),
    parameter("nameless", "", "_: Noisy", "Noisy(\"argument\")", "1"),
    parameter(
        "underscore",
        "",
        "_noisy: Noisy",
        "Noisy(\"argument\")",
        "1",
    ),
    parameter("used_underscore", "", "_id: u64", "7", "_id"),
    parameter(
        "tuple",
        "",
        "(left, right): (u64, u64)",
        "(3, 4)",
        "left + right",
    ),
    parameter(
        "half_tuple",
        "",
        "(mut left, _): (u64, Noisy)",
        "(3, Noisy(\"argument\"))",
        "{ left += 1; left }",
    ),
    parameter(
        "structure",
        "",
        "Order { id, noisy }: Order",
        "Order::new()",
        "{ drop(noisy); id }",
    ),
    parameter("rest", "", "Order { id, .. }: Order", "Order::new()", "id"),
    parameter("reference", "", "&id: &~u64", "&7", "id"),
    parameter("by_ref", "", "ref order: Order", "Order::new()", "order.id"),
    parameter(
        "by_ref_mut",
        "",
        "ref mut order: Order",
        "Order::new()",
        "{ order.id += 1; order.id }",
    ),
    parameter(
        "array",
        "",
        "[first, .., last]: [u64; 4]",
        "[1, 2, 3, 4]",
        "first + last",
    ),
    parameter(
        "list",
        "",
        "list: &~mut Vec<u64>",
        "&mut vec![1]",
        "{ list.push(1); list.iter().sum::<u64>() }",
    ),
    parameter(
        "slice",
        "",
        "list: &~[u64]",
        "&[1, 2]",
        "list.iter().sum::<u64>()",
    ),
    parameter(
        "closure",
        "",
        "double: impl Fn(u64) -> u64 + Send + Sync",
        "|id| 2 * id",
        "double(7)",
    ),
    parameter(
        "once",
        "",
        "once: Box<dyn FnOnce(u64) -> u64 + Send + Sync>",
        "Box::new(|id| 2 * id)",
        "once(7)",
    ),
    parameter(
        "generic",
        "T: Into<u64> + Send + Sync + Clone",
        "id: T",
        "7_u32",
        "id.into()",
    ),
    parameter(
        "unsized_generic",
        "T: AsRef<str> + Send + Sync + ?Sized",
        "name: &~T",
        "\"seven\"",
        "u64::from(name.as_ref().is_empty())",
    ),
    parameter(
        "constant",
        "const N: usize",
        "list: [u64; N]",
        "[1, 2, 3]",
        "list.iter().sum::<u64>()",
    ),
    parameter(
        "two_owners",
        "",
        "one: Noisy, two: Noisy",
        "Noisy(\"one\"), Noisy(\"two\")",
        "{ let _three = Noisy(\"three\"); drop(one); say(\"body\"); 1 }",
    ),
    parameter("shadowed", "", "id: u64", "7", "{ let id = id + 1; id }"),
    parameter(
        "locked_cell",
        "",
        "cell: Arc<Mutex<u64>>",
        "Arc::new(Mutex::new(7))",
        "*cell.lock().unwrap()",
    ),
    parameter(
        "moved_into_closure",
        "",
        "name: String",
        "\"seven\".to_owned()",
        "(move || u64::from(name.is_empty()))()",
    ),
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

const RETURNS: [Return; 22] = [
    returns("result", "Result<u64, Error>", "Ok(TOTAL)", ""),
    returns(
        "bound",
        "Result<u64, Error>",
        "let total = TOTAL; Ok(total)",
        "",
    ),
    returns(
        "early",
        "Result<u64, Error>",
        "if TOTAL > 100 { return Err(Error::Other(\"many\")); } Ok(1)",
        "",
    ),
    returns("early_alone", "Result<u64, Error>", "return Ok(TOTAL);", ""),
    returns(
        "question",
        "Result<u64, Error>",
        "let total = Ok::<u64, Error>(TOTAL)?; Ok(total)",
        "",
    ),
    returns(
        "question_alone",
        "Result<u64, Error>",
        "Ok(Ok::<u64, Error>(TOTAL)?)",
        "",
    ),
    returns(
        "converted",
        "Result<u64, Error>",
        "let more: u64 = \"5\".parse()?; Ok(TOTAL + more)",
        "",
    ),
    returns("alias", "Outcome<u64>", "Ok(TOTAL)", ""),
    returns("lock_error", "Result<u64, LockError>", "Ok(TOTAL)", ""),
    returns(
        "any_error",
        "Result<u64, Box<dyn std::error::Error + Send + Sync>>",
        "if TOTAL > 100 { Err(\"many\")?; } Ok(1)",
        "",
    ),
    returns(
        "any_error_here",
        "Result<u64, Box<dyn std::error::Error>>",
        "if TOTAL > 100 { return Err(Box::new(Error::Other(\"many\"))); } Ok(1)",
        "",
    ),
    returns(
        "infallible",
        "Result<std::convert::Infallible, Error>",
        "let _ = TOTAL; Err(Error::Other(\"never\"))",
        "",
    ),
    returns(
        "panics_else",
        "Result<u64, &'static str>",
        "if TOTAL > 100 { panic!(\"many\"); } Ok(1)",
        "|_| Err(\"no lock\")",
    ),
    returns("number", "u64", "TOTAL", "|_| 0"),
    returns("unit", "()", "drop(TOTAL)", "|_| ()"),
    returns("nothing", "", "drop(TOTAL);", "drop"),
    returns("option", "Option<u64>", "Some(TOTAL)", "|_| None"),
    returns(
        "string",
        "String",
        "TOTAL.to_string()",
        "|error| error.to_string()",
    ),
    returns(
        "dynamic",
        "Box<dyn std::fmt::Debug + Send>",
        "Box::new(TOTAL)",
        "|error| Box::new(error)",
    ),
    returns(
        "static_slice",
        "&'static [u64]",
        "if TOTAL > 100 { &[1] } else { &[1, 2] }",
        "|_| &[]",
    ),
    returns(
        "hidden",
        "Result<impl std::fmt::Debug, Error>",
        "Ok(TOTAL)",
        "",
    ),
    returns(
        "dynamic_inside",
        "Result<Box<dyn std::fmt::Debug + Send>, Error>",
        "Ok(Box::new(TOTAL))",
        "",
    ),
];

/// Builds the files, one for each context and kind.
pub(crate) fn sources() -> Vec<Source> {
    let mut sources = Vec::new();
    for (context_name, context) in CONTEXTS {
        for (way_name, way) in WAYS {
            let in_trait = matches!(context, Context::TraitDefault | Context::TraitImpl);
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
/// Functions of an `impl` get all receivers. All others get a sample of the three.
fn combinations(context: Context, way: Way) -> Vec<(usize, &'static Parameter, &'static Return)> {
    let usual = usize::from(context != Context::Free);
    let mut all: Vec<(usize, &Parameter, &Return)> = Vec::new();
    if context == Context::Free || way == Way::AsyncTrait && context == Context::TraitImpl {
        all.extend(
            PARAMETERS
                .iter()
                .map(|parameter| (usual, parameter, &RETURNS[1])),
        );
        all.extend(RETURNS.iter().map(|ret| (usual, &PARAMETERS[1], ret)));
    }
    if matches!(context, Context::Inherent | Context::TraitImpl) {
        all.extend((0..RECEIVERS.len()).map(|receiver| (receiver, &PARAMETERS[3], &RETURNS[0])));
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
        let name = self.name();
        let function = self.function()?;
        let run = self.run();
        let generic = match self.context {
            Context::GenericImpl => "<T>",
            _ => "",
        };
        let around = match self.context {
            Context::Free => function,
            Context::Inherent => format!("{SHOP}impl Shop {{\n{function}}}\n"),
            Context::GenericImpl => format!(
                "pub struct Shelf<T> {{ base: u64, kept: T }}\nimpl<T> Shelf<T> {{ fn new(kept: T) -> Self {{ Shelf {{ base: \
                 5, kept }} }} }}\nimpl{generic} Shelf{generic} where T: std::fmt::Debug + Unpin + Send + Sync + 'static {{\n{function}}}\n"
            ),
            Context::TraitDefault => {
                let bound = match self.way {
                    Way::AsyncTrait => "#[async_trait::async_trait]\n",
                    _ => "",
                };
                format!(
                    "{SHOP}{bound}pub trait Sells: Sized + Send + Sync + Unpin + 'static {{\nfn base(&self) -> u64;\n{function}}}\nimpl Sells \
                     for Shop {{ fn base(&self) -> u64 {{ self.base }} }}\n"
                )
            }
            Context::TraitImpl => {
                let bound = match self.way {
                    Way::AsyncTrait => "#[async_trait::async_trait]\n",
                    _ => "",
                };
                let declared = self.declaration()?;
                format!(
                    "{SHOP}{bound}pub trait Sells: Sized {{\n{declared};\n}}\n{bound}impl Sells for Shop {{\n{function}}}\n"
                )
            }
        };
        let name_line = format!("pub mod {name} {{\nuse super::*;\n");
        Some(format!("{name_line}{}{run}}}\n\n", indent(&around)))
    }

    fn needs_lifetime(&self) -> bool {
        matches!(self.way, Way::Boxed | Way::Opaque)
    }

    fn with_lifetime(&self, text: &str) -> String {
        if self.needs_lifetime() {
            text.replace("&~", "&'a ")
        } else {
            text.replace("&~", "&")
        }
    }

    fn has_receiver(&self) -> bool {
        self.context != Context::Free && self.receiver > 0
    }

    /// `async fn call(&self, id: u64) -> Result<u64, Error>`
    fn signature(&self, parameter: &str) -> Option<String> {
        let receiver = RECEIVERS[self.receiver].1;
        let opaque = self.ret.ty.contains("impl ") || parameter.contains("impl ");
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
        let is_block = matches!(self.way, Way::Boxed | Way::Opaque);
        if is_block && (is_coerced || self.parameter.declared.starts_with("ref ")) {
            return None;
        }
        // The future contains the error, so it is `Send` only with a `Send` error.
        if self.way == Way::AsyncTrait && self.ret.name == "any_error_here" {
            return None;
        }
        let is_not_send = receiver.contains("Rc<");
        if is_not_send && matches!(self.way, Way::Boxed | Way::AsyncTrait | Way::Opaque) {
            return None;
        }
        let asynchronous = match self.way {
            Way::Async | Way::AsyncTrait => "async ",
            _ => "",
        };
        let written = match (self.way, self.ret.ty) {
            (Way::Sync | Way::Async | Way::AsyncTrait, "") => String::new(),
            (Way::Sync | Way::Async | Way::AsyncTrait, ty) => format!(" -> {ty}"),
            (Way::Boxed, ty) => {
                let ty = if ty.is_empty() { "()" } else { ty };
                format!(" -> Pin<Box<dyn Future<Output = {ty}> + Send + 'a>>")
            }
            (Way::Opaque, ty) => {
                let ty = if ty.is_empty() { "()" } else { ty };
                format!(" -> impl Future<Output = {ty}> + 'a")
            }
        };
        let mut generics = Vec::new();
        if self.needs_lifetime() {
            generics.push("'a".to_owned());
        }
        if !self.parameter.generics.is_empty() {
            let bound = self.parameter.generics.to_owned();
            let bound = match self.way {
                Way::Boxed | Way::Opaque if !bound.starts_with("const") => bound + " + 'a",
                _ => bound,
            };
            // The type of the impl has that name.
            let bound = match self.context {
                Context::GenericImpl => bound.replacen('T', "U", 1),
                _ => bound,
            };
            generics.push(bound);
        }
        let generics = match generics.join(", ") {
            none if none.is_empty() => none,
            some => format!("<{some}>"),
        };
        let mut parameter = self.with_lifetime(parameter);
        if self.context == Context::GenericImpl && self.parameter.generics.starts_with('T') {
            parameter = parameter
                .replace(": T", ": U")
                .replace(" T", " U")
                .replace("&T", "&U");
        }
        if self.needs_lifetime() {
            parameter = parameter.replace("Send + Sync", "Send + Sync + 'a");
        }
        let receiver = match self.context {
            Context::Free => String::new(),
            _ => self.with_lifetime(receiver),
        };
        let inside: Vec<&str> = [&*receiver, &*parameter]
            .into_iter()
            .filter(|part| !part.is_empty())
            .collect();
        let public = match self.context {
            Context::TraitDefault | Context::TraitImpl => "",
            _ => "pub ",
        };
        Some(format!(
            "{public}{asynchronous}fn call{generics}({}){written}",
            inside.join(", ")
        ))
    }

    /// Returns the same for a trait, where patterns are not allowed.
    fn declaration(&self) -> Option<String> {
        let declared = self.parameter.declared;
        let types = declared.split(", ").filter(|part| part.contains(": "));
        let is_pattern = declared.starts_with(['(', '[', '&', 'O']) || declared.starts_with("ref ");
        let parameter = if is_pattern {
            let (_, ty) = declared
                .rsplit_once("}: ")
                .or_else(|| declared.split_once("): "))
                .or_else(|| declared.split_once("]: "))
                .or_else(|| declared.split_once(": "))?;
            format!("value: {ty}")
        } else {
            let parts: Vec<&str> = types.map(|part| part.trim_start_matches("mut ")).collect();
            parts.join(", ")
        };
        let receiver = self.signature(&parameter)?;
        Some(receiver.replace("(mut self", "(self"))
    }

    fn function(&self) -> Option<String> {
        let signature = self.signature(self.parameter.declared)?;
        let mut total = self.parameter.used.to_owned();
        if self.has_receiver() {
            total = match self.context {
                Context::TraitDefault => format!("self.base() + {total}"),
                _ => format!("self.base + {total}"),
            };
        }
        if RECEIVERS[self.receiver].1 == "mut self"
            && self.context != Context::Free
            && self.context != Context::TraitDefault
        {
            total = format!("{{ self.base += 1; {total} }}");
        }
        let needs_parentheses = self.ret.end.contains("TOTAL.") || self.ret.end.contains("TOTAL >");
        let total = if needs_parentheses {
            format!("({total})")
        } else {
            total
        };
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
        let name = self.name();
        let mut given = self.parameter.given.to_owned();
        let receiver = match self.context {
            Context::Free => "",
            Context::GenericImpl => &RECEIVERS[self.receiver]
                .2
                .replace("Shop::new()", "Shelf::new('x')")
                .replace("Shop::", "Shelf::<char>::"),
            _ => RECEIVERS[self.receiver].2,
        };
        if given.is_empty() {
            given = String::new();
        }
        let call = format!("{receiver}call({given})");
        if self.way == Way::Sync {
            return format!(
                "    pub fn run(runs: &mut Runs) {{\n        runs.value(\"{name}\", {call});\n    }}\n"
            );
        }
        let is_owned = !self.parameter.declared.contains('&')
            && (!self.has_receiver() || !RECEIVERS[self.receiver].1.contains('&'));
        let call = if is_owned {
            format!("assert_static({call})")
        } else {
            call
        };
        format!(
            "    pub fn run(runs: &mut Runs) {{\n        run!(runs, \"{name}\", {call});\n    }}\n"
        )
    }
}

fn indent(text: &str) -> String {
    text.lines().fold(String::new(), |indented, line| {
        indented + "    " + line + "\n"
    })
}
