//! `#[derive(Module)]`, which `hesper_nn` re-exports and documents.
//!
//! The macro writes two visitors and delegates everything else to functions of `hesper_nn` that are not
//! generic, so that a module costs its crate little compile time.
#![forbid(unsafe_code)]

use proc_macro2::{Ident, TokenStream, TokenTree};
use quote::{ToTokens, format_ident, quote};
use syn::{
    Data, DeriveInput, Error, Field, Fields, Generics, LitStr, Path, Result, parse_macro_input, parse_quote,
};

/// Implements `Module`, `Tree` and `Debug` for a struct or an enum of modules; see `hesper_nn::Module`.
#[proc_macro_derive(Module, attributes(module))]
pub fn derive_module(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    expand(&input).unwrap_or_else(|error| error.to_compile_error()).into()
}

/// How a field takes part.
enum FieldKind {
    /// A module of this name.
    Named(String),
    /// A module whose leaves have the path of the struct.
    Flat,
    /// Not part of the module.
    Skipped,
    /// Derived from the other fields: reset when they may change.
    Cache,
}

fn expand(input: &DeriveInput) -> Result<TokenStream> {
    let nn = crate_path(input)?;
    let name = &input.ident;
    let (mut visit, mut visit_mut) = (Vec::new(), Vec::new());
    let mut arm = |pattern: TokenStream, variant: Option<String>, fields: &Fields| -> Result<()> {
        let only = fields.len() == 1 && matches!(fields, Fields::Unnamed(_));
        let bindings: Vec<_> = (0..fields.len()).map(|at| format_ident!("field_{at}")).collect();
        let members = fields.members();
        let bound = quote!(#pattern { #(#members: #bindings),* });
        let kinds = fields.iter().enumerate().map(|(at, field)| field_kind(field, at, only));
        let kinds = kinds.collect::<Result<Vec<FieldKind>>>()?;
        let pairs = || kinds.iter().zip(&bindings);
        let read = pairs().map(|(kind, field)| match kind {
            FieldKind::Named(name) => quote!(path.enter(#name, |path| #nn::Module::visit(#field, path, f));),
            FieldKind::Flat => quote!(#nn::Module::visit(#field, path, f);),
            FieldKind::Skipped | FieldKind::Cache => quote!(let _ = #field;),
        });
        // Caches go first: a visitor that fails may have changed something.
        let reset = pairs().filter(|(kind, _)| matches!(kind, FieldKind::Cache));
        let reset = reset.map(|(_, field)| quote!(*#field = ::core::default::Default::default();));
        let write = pairs().map(|(kind, field)| match kind {
            FieldKind::Named(name) => {
                quote!(path.enter(#name, |path| #nn::Module::visit_mut(#field, path, f))?;)
            }
            FieldKind::Flat => quote!(#nn::Module::visit_mut(#field, path, f)?;),
            FieldKind::Skipped | FieldKind::Cache => quote!(let _ = #field;),
        });
        // The variant of an enum is part of its structure.
        let variant = variant.map(|name| quote!(f(path.as_str(), #nn::Leaf::Setting(&#name));));
        visit.push(quote!(#bound => { #variant #(#read)* }));
        visit_mut.push(quote!(#bound => { #(#reset)* #(#write)* }));
        Ok(())
    };
    match &input.data {
        Data::Struct(data) => arm(quote!(Self), None, &data.fields)?,
        Data::Enum(data) if data.variants.is_empty() => {
            return Err(Error::new_spanned(name, "cannot derive Module for an enum without variants"));
        }
        Data::Enum(data) => {
            for variant in &data.variants {
                let ident = &variant.ident;
                arm(quote!(Self::#ident), Some(ident.to_string()), &variant.fields)?;
            }
        }
        Data::Union(_) => return Err(Error::new_spanned(name, "cannot derive Module for a union")),
    }
    let bounded = module_generics(input, &nn);
    let (generics, types, clause) = bounded.split_for_impl();
    // For generic types only: for others the error of the call of `clone` names what is missing.
    let mut cloned = bounded.clone();
    if input.generics.type_params().next().is_some() {
        cloned.make_where_clause().predicates.push(parse_quote!(Self: ::core::clone::Clone));
    }
    let (_, _, tree_clause) = cloned.split_for_impl();
    let text = name.to_string();
    Ok(quote! {
        impl #generics #nn::Module for #name #types #clause {
            fn visit(&self, path: &mut #nn::Path, f: &mut dyn FnMut(&str, #nn::Leaf<'_>)) {
                let _ = (&path, &f);
                match self { #(#visit)* }
            }

            fn visit_mut(
                &mut self,
                path: &mut #nn::Path,
                f: &mut dyn FnMut(&str, #nn::LeafMut<'_>) -> #nn::Result<()>,
            ) -> #nn::Result<()> {
                let _ = (&path, &f);
                match self { #(#visit_mut)* }
                Ok(())
            }
        }

        impl #generics #nn::module::Tree for #name #types #tree_clause {
            fn flatten(&self, into: &mut ::std::vec::Vec<#nn::module::Array>) {
                #nn::module::flatten(self, into);
            }

            fn rebuild(
                &self,
                arrays: &mut dyn ::core::iter::Iterator<Item = #nn::module::Array>,
            ) -> ::core::result::Result<Self, #nn::module::ArrayError> {
                let mut copy = ::core::clone::Clone::clone(self);
                #nn::module::replace(&mut copy, arrays)?;
                Ok(copy)
            }

            fn structure(&self, into: &mut ::std::vec::Vec<u8>) {
                #nn::module::structure(self, into);
            }

            fn trainable(&self, into: &mut ::std::vec::Vec<bool>) {
                #nn::module::trainable(self, into);
            }
        }

        impl #generics ::core::fmt::Debug for #name #types #clause {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                #nn::module::describe(self, #text, f)
            }
        }
    })
}

/// The generics of a type, where each type parameter of a field that takes part is a module.
fn module_generics(input: &DeriveInput, nn: &Path) -> Generics {
    let mut generics = input.generics.clone();
    let fields: Vec<&Field> = match &input.data {
        Data::Struct(data) => data.fields.iter().collect(),
        Data::Enum(data) => data.variants.iter().flat_map(|variant| &variant.fields).collect(),
        Data::Union(_) => Vec::new(),
    };
    let takes_part = |field: &&Field| {
        let kind = field_kind(field, 0, false);
        !matches!(kind, Ok(FieldKind::Skipped | FieldKind::Cache))
    };
    let types: Vec<TokenStream> =
        fields.into_iter().filter(takes_part).map(|field| field.ty.to_token_stream()).collect();
    let used: Vec<_> = input.generics.type_params().map(|parameter| parameter.ident.clone()).collect();
    for parameter in used.into_iter().filter(|parameter| types.iter().any(|ty| names(ty, parameter))) {
        generics.make_where_clause().predicates.push(parse_quote!(#parameter: #nn::Module));
    }
    generics
}

/// Whether a type names a type parameter.
fn names(ty: &TokenStream, parameter: &Ident) -> bool {
    ty.clone().into_iter().any(|token| match token {
        TokenTree::Ident(ident) => ident == *parameter,
        TokenTree::Group(group) => names(&group.stream(), parameter),
        _ => false,
    })
}

/// The kind of a field from its attributes. The only field of a tuple has no name of its own.
fn field_kind(field: &Field, at: usize, only: bool) -> Result<FieldKind> {
    let name = field.ident.as_ref().map_or_else(|| at.to_string(), |ident| ident.to_string());
    let mut kind = match only {
        true => FieldKind::Flat,
        false => FieldKind::Named(name.trim_start_matches("r#").to_string()),
    };
    for attribute in field.attrs.iter().filter(|attribute| attribute.path().is_ident("module")) {
        attribute.parse_nested_meta(|meta| {
            kind = if meta.path.is_ident("name") {
                FieldKind::Named(meta.value()?.parse::<LitStr>()?.value())
            } else if meta.path.is_ident("flatten") {
                FieldKind::Flat
            } else if meta.path.is_ident("skip") {
                FieldKind::Skipped
            } else if meta.path.is_ident("cache") {
                FieldKind::Cache
            } else {
                return Err(
                    meta.error("unknown attribute; known are name = \"...\", flatten, skip and cache")
                );
            };
            Ok(())
        })?;
    }
    Ok(kind)
}

/// The path of `hesper_nn`: as `#[module(crate = ...)]` says, else `::hesper_nn` if the manifest names the
/// package, else the one in the facade.
fn crate_path(input: &DeriveInput) -> Result<Path> {
    let mut found = None;
    for attribute in input.attrs.iter().filter(|attribute| attribute.path().is_ident("module")) {
        attribute.parse_nested_meta(|meta| {
            if !meta.path.is_ident("crate") {
                return Err(meta.error("unknown attribute; known is crate = path"));
            }
            found = Some(meta.value()?.parse::<Path>()?);
            Ok(())
        })?;
    }
    if let Some(path) = found {
        return Ok(path);
    }
    let manifest = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    let text = std::fs::read_to_string(format!("{manifest}/Cargo.toml")).unwrap_or_default();
    let named = text.lines().any(|line| !line.trim_start().starts_with('#') && line.contains("hesper-nn"));
    Ok(if named || text.is_empty() { parse_quote!(::hesper_nn) } else { parse_quote!(::hesper::nn) })
}
