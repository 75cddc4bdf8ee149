//! Finds the variables that a function's parameters bring into scope.

use proc_macro2::Ident;
use syn::ext::IdentExt;
use syn::visit::{self, Visit};
use syn::{Attribute, FieldPat, FnArg, Pat, PatIdent, Path, ReceiverKind, Signature, Token, Type};

/// A variable that the parameters bring into scope, `self` among them.
pub(crate) struct Binding {
    pub(crate) name: Ident,
    pub(crate) mutability: Option<Token![mut]>,
    /// The `#[cfg]`s under which it exists, and the lints that are set for it.
    pub(crate) attributes: Vec<Attribute>,
    /// Whether what compilers advise for an unused one fits only where it stands: `Order { id }`, whose remedy is
    /// `id: _`, and `&self`.
    pub(crate) judged_in_place: bool,
    /// Its type, if it is a parameter of its own and no part of one.
    pub(crate) ty: Option<Type>,
}

impl Binding {
    /// Returns whether this is the variable `name`, written raw or not.
    pub(crate) fn is(&self, name: &str) -> bool {
        self.name.unraw() == name.strip_prefix("r#").unwrap_or(name)
    }
}

/// Finds the variables of a function's parameters.
pub(crate) fn of_parameters(signature: &Signature) -> Vec<Binding> {
    let mut bindings = Bindings::default();
    for input in &signature.inputs {
        match input {
            FnArg::Receiver(receiver) => bindings.found.push(Binding {
                name: Ident::new("self", receiver.self_token.span),
                mutability: None,
                attributes: Vec::new(),
                judged_in_place: matches!(receiver.kind, ReceiverKind::Reference(..)),
                ty: None,
            }),
            FnArg::Typed(typed) => {
                bindings.under(&typed.attrs, |bindings| bindings.visit_pat(&typed.pat));
                if let (Pat::Ident(PatIdent { subpat: None, .. }), Some(only)) =
                    (&*typed.pat, bindings.found.last_mut())
                {
                    only.ty = Some((*typed.ty).clone());
                }
            }
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

/// Returns whether an attribute sets the level of lints.
pub(crate) fn sets_lints(attribute: &Attribute) -> bool {
    ["allow", "expect", "warn", "deny", "forbid"]
        .iter()
        .any(|level| attribute.path().is_ident(level))
}

#[derive(Default)]
struct Bindings {
    found: Vec<Binding>,
    attributes: Vec<Attribute>,
    shorthand: bool,
}

impl Bindings {
    /// Runs `visit` within those of `attributes` that hold for a variable.
    fn under(&mut self, attributes: &[Attribute], visit: impl FnOnce(&mut Self)) {
        let outside = self.attributes.len();
        let conditional = |path: &Path| path.is_ident("cfg") || path.is_ident("cfg_attr");
        self.attributes.extend(
            attributes
                .iter()
                .filter(|attribute| conditional(attribute.path()) || sets_lints(attribute))
                .cloned(),
        );
        visit(self);
        self.attributes.truncate(outside);
    }
}

impl<'ast> Visit<'ast> for Bindings {
    fn visit_pat_ident(&mut self, pattern: &'ast PatIdent) {
        // The alternatives of a pattern bind the same names again.
        if self.found.iter().all(|known| known.name != pattern.ident) {
            self.found.push(Binding {
                name: pattern.ident.clone(),
                mutability: match pattern.by_ref {
                    Some(_) => None,
                    None => pattern.mutability,
                },
                attributes: self.attributes.clone(),
                judged_in_place: self.shorthand,
                ty: None,
            });
        }
        visit::visit_pat_ident(self, pattern);
    }

    fn visit_field_pat(&mut self, field: &'ast FieldPat) {
        self.under(&field.attrs, |bindings| {
            bindings.shorthand = field.colon_token.is_none();
            bindings.visit_pat(&field.pat);
            bindings.shorthand = false;
        });
    }
}
