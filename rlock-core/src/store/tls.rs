//! TLS. No other module depends on whether the feature `tls` is enabled, except for the builder's methods.

#[cfg_attr(feature = "tls", path = "tls/certificates.rs")]
#[cfg_attr(not(feature = "tls"), path = "tls/without.rs")]
mod certificates;

pub(crate) use self::certificates::Tls;
