//! The variables that parameters bring into scope.

use proc_macro2::Ident;
use syn::ext::IdentExt;
use syn::visit::{self, Visit};
use syn::{Attribute, FieldPat, FnArg, Pat, PatIdent, Signature, Type};

/// A variable that the parameters bring into scope, `self` among them.
pub(crate) struct Binding {
    pub(crate) name: Ident,
    /// The `#[cfg]`s under which it exists.
    pub(crate) cfg: Vec<Attribute>,
    /// Its type, if it is a parameter of its own and no part of one.
    pub(crate) ty: Option<Type>,
}

impl Binding {
    /// Tells whether this is the variable `name`, be it written raw or not.
    pub(crate) fn is(&self, name: &str) -> bool {
        self.name.unraw() == name.strip_prefix("r#").unwrap_or(name)
    }
}

/// Finds the variables of a function's parameters.
pub(crate) fn of_parameters(signature: &Signature) -> Vec<Binding> {
    let mut bindings = Bindings::default();
    for input in &signature.inputs {
        match input {
            FnArg::Receiver(receiver) => {
                bindings.add(Ident::new("self", receiver.self_token.span), None);
            }
            FnArg::Typed(typed) => bindings.under(&typed.attrs, |bindings| match &*typed.pat {
                Pat::Ident(PatIdent {
                    ident,
                    subpat: None,
                    ..
                }) => bindings.add(ident.clone(), Some((*typed.ty).clone())),
                pattern => bindings.visit_pat(pattern),
            }),
        }
    }
    bindings.found
}

/// Finds the variables of a pattern that stands under `attributes`.
pub(crate) fn of_pattern(attributes: &[Attribute], pattern: &Pat) -> Vec<Binding> {
    let mut bindings = Bindings::default();
    bindings.under(attributes, |bindings| bindings.visit_pat(pattern));
    bindings.found
}

#[derive(Default)]
struct Bindings {
    found: Vec<Binding>,
    cfg: Vec<Attribute>,
}

impl Bindings {
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

    fn add(&mut self, name: Ident, ty: Option<Type>) {
        // The alternatives of a pattern bind the same names again.
        if self.found.iter().all(|binding| binding.name != name) {
            self.found.push(Binding {
                name,
                cfg: self.cfg.clone(),
                ty,
            });
        }
    }
}

impl<'ast> Visit<'ast> for Bindings {
    fn visit_pat_ident(&mut self, pattern: &'ast PatIdent) {
        self.add(pattern.ident.clone(), None);
        visit::visit_pat_ident(self, pattern);
    }

    fn visit_field_pat(&mut self, field: &'ast FieldPat) {
        self.under(&field.attrs, |bindings| bindings.visit_pat(&field.pat));
    }
}
