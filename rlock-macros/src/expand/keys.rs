//! Generates the code that renders a key from its template, for functions and for `key!`.

use proc_macro2::{Ident, Span, TokenStream};
use quote::quote_spanned;
use syn::{LitStr, Path};

use super::{core_of, requirements_of};
use crate::signature::Function;
use crate::template::{self, Part, Placeholder, Template};

/// Where the placeholders find their values.
#[derive(Clone, Copy)]
pub(super) struct Scope<'a> {
    /// The function whose parameters they name. Without one, they name variables, constants or `self` in the scope that
    /// the template was written in.
    pub(super) function: Option<&'a Function>,
    /// The path of the core crate.
    pub(super) krate: Option<&'a Path>,
}

/// The parts of an expression that makes a key for each element of a list.
pub(super) struct List {
    /// Statements that render the placeholders which are the same for all elements.
    pub(super) same: TokenStream,
    /// The list.
    pub(super) elements: TokenStream,
    /// The variable of the element.
    pub(super) element: Ident,
    /// Statements that bind the rendered key to [`name`].
    pub(super) key: TokenStream,
}

impl Scope<'_> {
    /// Binds the rendered key to [`name`].
    pub(super) fn key(self, template: &Template) -> TokenStream {
        let site = site(template);
        let core = core_of(self.krate, site);
        let key = name(template);
        let (text, parts) = match &*template.parts {
            [Part::Text(text), parts @ ..] => (&**text, parts),
            parts => ("", parts),
        };
        let calls = parts.iter().map(|part| self.part_call(template, part));
        quote_spanned!(site=> let #key = #core::KeyText::new(#text); #(let #key = #key.#calls;)*)
    }

    /// Renders the placeholders that are the same for all elements apart, so that only the element's placeholders are
    /// evaluated while the list is borrowed. Returns `None` for a template without a list.
    pub(super) fn list(self, template: &Template) -> Option<List> {
        let literal = template.literal.span();
        let site = site(template);
        let core = core_of(self.krate, site);
        let placeholder = template.list()?;
        let elements = placeholder.list(self.root(placeholder), literal)?;
        let key_name = name(template);
        let mut same = TokenStream::new();
        let mut key = quote_spanned!(site=> let #key_name = #core::KeyText::new(""););
        for (index, part) in template.parts.iter().enumerate() {
            let mut call = self.part_call(template, part);
            if let Part::Value(placeholder) = part
                && !placeholder.is_list()
            {
                let value = Ident::new(&format!("__rlock_value{index}"), site);
                same.extend(quote_spanned!(site=> let #value = #core::KeyText::new("").#call;));
                call = quote_spanned!(site=> and(&#value));
            }
            key.extend(quote_spanned!(site=> let #key_name = #key_name.#call;));
        }
        Some(List {
            same,
            elements,
            element: template::element(literal),
            key,
        })
    }

    /// `text("order:")` or `value("id", KeyValue::<7, _>::as_display(&id))`
    fn part_call(self, template: &Template, part: &Part) -> TokenStream {
        let literal = template.literal.span();
        let site = site(template);
        match part {
            Part::Text(text) => quote_spanned!(site=> text(#text)),
            Part::Value(placeholder) => {
                let value = placeholder.expression(self.root(placeholder), literal);
                let (name, position) = (&placeholder.text, placeholder.position);
                let value = match &placeholder.format {
                    None => {
                        let requirements = requirements_of(self.krate, site);
                        quote_spanned!(site=> #requirements::KeyValue::<#position, _>::as_display(&#value))
                    }
                    Some(format) => {
                        let literal = LitStr::new(&format!("{{:{format}}}"), site);
                        let value = if format.ends_with('?') {
                            let core = core_of(self.krate, site);
                            quote_spanned!(site=> #core::debugged::<#position, _>(&#value).__rlock_ordered())
                        } else {
                            quote_spanned!(site=> &#value)
                        };
                        quote_spanned!(site=> &::core::format_args!(#literal, #value))
                    }
                };
                quote_spanned!(site=> value(#name, #value))
            }
        }
    }

    /// Finds the parameter that a placeholder starts from.
    fn root(&self, placeholder: &Placeholder) -> Option<&Ident> {
        let root = self.function?.binding(&placeholder.root)?;
        Some(&root.name)
    }
}

/// Returns the variable of a rendered key.
pub(super) fn name(template: &Template) -> Ident {
    Ident::new("__rlock_key", site(template))
}

fn site(template: &Template) -> Span {
    Span::mixed_site().located_at(template.literal.span())
}

/// Expands `key!`: a text, or a list of texts if the template goes through a list.
pub(crate) fn texts(template: &Template, krate: &Path) -> TokenStream {
    let scope = Scope {
        function: None,
        krate: Some(krate),
    };
    let site = site(template);
    let key_name = name(template);
    let Some(List {
        same,
        elements,
        element,
        key,
    }) = scope.list(template)
    else {
        let key = scope.key(template);
        return quote_spanned!(site=> { #key #key_name.into_text() });
    };
    let core = core_of(Some(krate), site);
    quote_spanned! {site=>
        { #same #core::texts(#elements.iter(), |#element| { #key #key_name }) }
    }
}
