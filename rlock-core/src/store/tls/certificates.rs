//! Certificates that the client was given, instead of the system's.

use std::fmt;

use redis::{Client, ClientTlsConfig, ConnectionInfo, RedisResult, TlsCertificates};
use rustls::{
    RootCertStore,
    crypto::ring::default_provider,
    pki_types::{CertificateDer, PrivateKeyDer, pem, pem::PemObject},
    sign::CertifiedKey,
};

use crate::error::LockError;

/// The trusted authorities, and the client's own certificate.
#[derive(Clone, Default)]
pub(crate) struct Tls {
    authorities: Option<Vec<u8>>,
    /// The client's own certificate and its key.
    own: Option<ClientTlsConfig>,
}

const AUTHORITIES: &str = "tls_ca";
const OWN: &str = "tls_client_certificate";

impl Tls {
    pub(crate) const IS_SUPPORTED: bool = true;

    pub(crate) fn trust(&mut self, authorities: Vec<u8>) {
        self.authorities = Some(authorities);
    }

    pub(crate) fn present(&mut self, certificate: Vec<u8>, key: Vec<u8>) {
        self.own = Some(ClientTlsConfig {
            client_cert: certificate,
            client_key: key,
        });
    }

    /// Returns the name of an option that was set, if any.
    fn option(&self) -> Option<&'static str> {
        let authorities = self.authorities.as_ref().map(|_| AUTHORITIES);
        authorities.or(self.own.as_ref().map(|_| OWN))
    }

    /// Returns an error if a certificate or the key is invalid, or if no connection uses it. Called before the client
    /// connects.
    pub(crate) fn check(&self, uses_tls: bool) -> Result<(), LockError> {
        self.check_certificates()?;
        match self.option() {
            Some(option) if !uses_tls => Err(LockError::invalid_option(
                option,
                "(a certificate)",
                "the URL does not use TLS; write `rediss://`, `rediss-sentinel://` or `rediss-cluster://`",
            )),
            _ => Ok(()),
        }
    }

    fn check_certificates(&self) -> Result<(), LockError> {
        if let Some(authorities) = &self.authorities {
            let mut store = RootCertStore::empty();
            for authority in certificates(AUTHORITIES, authorities)? {
                let added = store.add(authority);
                added.map_err(|error| invalid(AUTHORITIES, authorities, error.to_string()))?;
            }
        }
        let Some(ClientTlsConfig {
            client_cert,
            client_key,
        }) = &self.own
        else {
            return Ok(());
        };
        let chain = certificates(OWN, client_cert)?;
        let key = PrivateKeyDer::from_pem_slice(client_key).map_err(|error| {
            let what = "the key must be PEM without a password: `-----BEGIN PRIVATE KEY-----`";
            invalid(OWN, client_key, format!("{what}; {error}"))
        })?;
        let fits = CertifiedKey::from_der(chain, key, &default_provider());
        fits.map(drop).map_err(|error| {
            let what = "the key is not the certificate's, or its kind is unknown";
            invalid(OWN, client_key, format!("{what}: {error}"))
        })
    }

    /// Returns a client of a server. redis-rs accepts certificates only with a URL for TLS.
    pub(in crate::store) fn open(&self, info: ConnectionInfo) -> RedisResult<Client> {
        if self.option().is_none() {
            return Client::open(info);
        }
        let certificates = TlsCertificates {
            client_tls: self.own.clone(),
            root_cert: self.authorities.clone(),
        };
        Client::build_with_tls(info, certificates)
    }
}

/// Shows whether each option was set, and never its value.
impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field(AUTHORITIES, &self.authorities.is_some())
            .field(OWN, &self.own.is_some())
            .finish()
    }
}

/// Returns all certificates of a PEM. Returns an error if there is none.
fn certificates(
    option: &'static str,
    given: &[u8],
) -> Result<Vec<CertificateDer<'static>>, LockError> {
    let wrong = |error: pem::Error| {
        let what = "certificates must be PEM: `-----BEGIN CERTIFICATE-----`";
        invalid(option, given, format!("{what}; {error}"))
    };
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(given).collect();
    let read = read.map_err(wrong)?;
    if read.is_empty() {
        return Err(wrong(pem::Error::NoItemsFound));
    }
    Ok(read)
}

/// Returns the error for an invalid option. Never shows the value, which may be a key.
fn invalid(option: &'static str, given: &[u8], reason: String) -> LockError {
    LockError::invalid_option(option, format!("({} bytes)", given.len()), reason)
}
