//! TLS connections, with or without the feature `tls`. No other module depends on whether the feature `tls` is
//! enabled, except for the builder's methods.

#[cfg_attr(feature = "tls", path = "tls/certificates.rs")]
#[cfg_attr(not(feature = "tls"), path = "tls/without.rs")]
mod certificates;

#[cfg(feature = "tls")]
pub use self::certificates::ClientCertificate;
pub(crate) use self::certificates::Tls;
