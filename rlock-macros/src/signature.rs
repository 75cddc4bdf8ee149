//! The annotated function: what stays as it is, and what the expansion needs to know of it.

use proc_macro2::{Delimiter, Group, Ident, TokenStream, TokenTree};
use syn::ext::IdentExt;
use syn::parse::{ParseStream, Parser};
use syn::visit::{self, Visit};
use syn::{Attribute, FieldPat, FnArg, PatIdent, ReturnType, Signature, Token, Visibility};

use crate::check;

/// A function, taken apart only as far as needed: head and body stay the tokens that they were.
pub(crate) struct Function {
    /// All in front of the body: attributes, visibility, signature.
    pub(crate) head: TokenStream,
    /// The braces and what is in them.
    pub(crate) body: Group,
    pub(crate) signature: Signature,
    pub(crate) bindings: Vec<Binding>,
}

/// A variable that the parameters bring into scope, `self` among them.
pub(crate) struct Binding {
    pub(crate) name: Ident,
    /// The `#[cfg]`s under which it exists.
    pub(crate) cfg: Vec<Attribute>,
}

impl Binding {
    /// Tells whether this is the variable `name`, be it written raw or not.
    pub(crate) fn is(&self, name: &str) -> bool {
        self.name.unraw() == name.strip_prefix("r#").unwrap_or(name)
    }
}

impl Function {
    pub(crate) fn parse(item: TokenStream) -> syn::Result<Self> {
        let mut head: Vec<TokenTree> = item.clone().into_iter().collect();
        let last = head.pop();
        let head = TokenStream::from_iter(head);
        let Ok(signature) = signature.parse2(head.clone()) else {
            return Err(check::no_function(item));
        };
        let Some(body) = last.and_then(braces) else {
            return Err(check::no_body(&signature));
        };
        let bindings = Bindings::of(&signature);
        Ok(Self {
            head,
            body,
            signature,
            bindings,
        })
    }

    /// Finds the variable that a placeholder starts from.
    pub(crate) fn binding(&self, name: &str) -> Option<&Ident> {
        let binding = self.bindings.iter().find(|binding| binding.is(name));
        binding.map(|binding| &binding.name)
    }

    /// Splits the body into its inner attributes, which have to stay in front, and the rest.
    pub(crate) fn split_body(&self) -> (TokenStream, TokenStream) {
        let tokens: Vec<TokenTree> = self.body.stream().into_iter().collect();
        let mut attributes = 0;
        while let [
            TokenTree::Punct(hash),
            TokenTree::Punct(bang),
            TokenTree::Group(group),
            ..,
        ] = &tokens[attributes..]
            && hash.as_char() == '#'
            && bang.as_char() == '!'
            && group.delimiter() == Delimiter::Bracket
        {
            attributes += 3;
        }
        let (inner, rest) = tokens.split_at(attributes);
        (
            inner.iter().cloned().collect(),
            rest.iter().cloned().collect(),
        )
    }

    pub(crate) fn return_type(&self) -> Option<&syn::Type> {
        match &self.signature.output {
            ReturnType::Default => None,
            ReturnType::Type(_, output) => Some(output),
        }
    }
}

fn signature(input: ParseStream<'_>) -> syn::Result<Signature> {
    input.call(Attribute::parse_outer)?;
    input.parse::<Visibility>()?;
    if input.peek(Token![default]) {
        input.parse::<Token![default]>()?;
    }
    input.parse()
}

/// Takes the braces out of a token, also if a macro passed them on as `$body:block`.
fn braces(token: TokenTree) -> Option<Group> {
    match token {
        TokenTree::Group(group) => match group.delimiter() {
            Delimiter::Brace => Some(group),
            Delimiter::None => {
                let mut inside = group.stream().into_iter();
                let only = inside.next()?;
                inside.next().is_none().then_some(only).and_then(braces)
            }
            _ => None,
        },
        _ => None,
    }
}

#[derive(Default)]
struct Bindings {
    found: Vec<Binding>,
    cfg: Vec<Attribute>,
}

impl Bindings {
    fn of(signature: &Signature) -> Vec<Binding> {
        let mut bindings = Self::default();
        for input in &signature.inputs {
            match input {
                FnArg::Receiver(receiver) => {
                    bindings.add(Ident::new("self", receiver.self_token.span));
                }
                FnArg::Typed(typed) => {
                    bindings.under(&typed.attrs, |bindings| bindings.visit_pat(&typed.pat));
                }
            }
        }
        bindings.found
    }

    /// Runs `visit` within the `#[cfg]`s of `attributes`.
    fn under(&mut self, attributes: &[Attribute], visit: impl FnOnce(&mut Self)) {
        let outside = self.cfg.len();
        self.cfg.extend(
            attributes
                .iter()
                .filter(|attribute| attribute.path().is_ident("cfg"))
                .cloned(),
        );
        visit(self);
        self.cfg.truncate(outside);
    }

    fn add(&mut self, name: Ident) {
        // The alternatives of a pattern bind the same names again.
        if self.found.iter().all(|binding| binding.name != name) {
            self.found.push(Binding {
                name,
                cfg: self.cfg.clone(),
            });
        }
    }
}

impl<'ast> Visit<'ast> for Bindings {
    fn visit_pat_ident(&mut self, pattern: &'ast PatIdent) {
        self.add(pattern.ident.clone());
        visit::visit_pat_ident(self, pattern);
    }

    fn visit_field_pat(&mut self, field: &'ast FieldPat) {
        self.under(&field.attrs, |bindings| bindings.visit_pat(&field.pat));
    }
}

#[cfg(test)]
mod tests {
    use super::Function;
    use quote::quote;

    fn names(item: proc_macro2::TokenStream) -> Vec<String> {
        let function = Function::parse(item).unwrap();
        function
            .bindings
            .iter()
            .map(|binding| binding.name.to_string())
            .collect()
    }

    #[test]
    fn every_variable_of_the_parameters_is_found_in_patterns_too() {
        assert_eq!(
            names(quote! {
                async fn f(
                    mut self: Arc<Self>,
                    a: u8,
                    mut b: u8,
                    _: u8,
                    (c, [d, e @ ..]): (u8, [u8; 3]),
                    Order { id, total: Money(cents), .. }: Order,
                    &r#type: &u8,
                    (Ok(same) | Err(same)): Result<u8, u8>,
                ) -> R {}
            }),
            [
                "self", "a", "b", "c", "d", "e", "id", "cents", "r#type", "same"
            ]
        );
        assert!(
            names(quote!(
                fn f() {}
            ))
            .is_empty()
        );
    }

    #[test]
    fn a_conditional_parameter_keeps_its_condition() {
        let function = Function::parse(quote!(
            async fn f(
                #[cfg(unix)]
                #[allow(unused)]
                a: u8,
                S {
                    #[cfg(test)]
                    b,
                }: S,
            ) {
            }
        ))
        .unwrap();
        let conditions: Vec<_> = function
            .bindings
            .iter()
            .map(|binding| binding.cfg.len())
            .collect();
        assert_eq!(conditions, [1, 1]);
    }

    #[test]
    fn inner_attributes_are_set_apart_from_the_statements() {
        let function = Function::parse(quote!(
            pub async fn f() {
                #![allow(unused)]
                #[allow(dead_code)]
                let x = 1;
            }
        ))
        .unwrap();
        let (inner, rest) = function.split_body();
        assert_eq!(inner.to_string(), quote!(#![allow(unused)]).to_string());
        assert_eq!(
            rest.to_string(),
            quote!(#[allow(dead_code)] let x = 1;).to_string()
        );
    }

    #[test]
    fn methods_of_all_kinds_are_functions() {
        for method in [
            quote!(
                pub(crate) async unsafe fn f<'a, T: Tr<'a>>(&'a self) -> &'a T
                where
                    T: Sized,
                {
                }
            ),
            quote!(default async fn f() {}),
            quote!(
                #[doc = "x"]
                async fn f(self: Pin<&mut Self>) -> impl Tr {}
            ),
            quote!(
                const fn f() {}
            ),
        ] {
            assert!(Function::parse(method).is_ok());
        }
    }
}
