//! Certificates that are not the system's.

use std::{fmt, sync::Arc};

use redis::{
    Client, ClientTlsConfig, ConnectionInfo, IntoConnectionInfo, RedisResult, TlsCertificates,
};
use rustls::{
    RootCertStore,
    crypto::ring::default_provider,
    pki_types::{CertificateDer, PrivateKeyDer, pem, pem::PemObject},
    sign::CertifiedKey,
};

use crate::error::LockError;

/// How a client knows its server, and the server its client.
#[derive(Clone, Default)]
pub(crate) struct Tls {
    authorities: Option<Vec<u8>>,
    own: Option<Arc<Own>>,
}

/// A client's own certificate and its key, as PEM.
struct Own {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

const AUTHORITIES: &str = "tls_ca";
const OWN: &str = "tls_client_certificate";

impl Tls {
    pub(crate) fn trust(&mut self, authorities: Vec<u8>) {
        self.authorities = Some(authorities);
    }

    pub(crate) fn present(&mut self, certificate: Vec<u8>, key: Vec<u8>) {
        self.own = Some(Arc::new(Own { certificate, key }));
    }

    /// Which option was set, if one was.
    pub(crate) fn option(&self) -> Option<&'static str> {
        let authorities = self.authorities.as_ref().map(|_| AUTHORITIES);
        authorities.or(self.own.as_ref().map(|_| OWN))
    }

    /// Reads all of it, so that what cannot be read is told before anything is sent.
    pub(crate) fn check(&self) -> Result<(), LockError> {
        if let Some(authorities) = &self.authorities {
            let mut store = RootCertStore::empty();
            for authority in certificates(AUTHORITIES, authorities)? {
                let added = store.add(authority);
                added.map_err(|error| invalid(AUTHORITIES, authorities, error.to_string()))?;
            }
        }
        let Some(own) = &self.own else {
            return Ok(());
        };
        let Own { certificate, key } = &**own;
        let chain = certificates(OWN, certificate)?;
        let read = PrivateKeyDer::from_pem_slice(key).map_err(|error| {
            let what = "the key is to be PEM, and not encrypted: `-----BEGIN PRIVATE KEY-----`";
            invalid(OWN, key, reason(what, &error))
        })?;
        let fits = CertifiedKey::from_der(chain, read, &default_provider());
        fits.map_err(|error| {
            let what = "the key is not the certificate's, or of an unknown kind";
            invalid(OWN, key, format!("{what}: {error}"))
        })?;
        Ok(())
    }

    /// A client of a server. Only one whose URL speaks of TLS takes certificates.
    pub(super) fn open(&self, info: impl IntoConnectionInfo) -> RedisResult<Client> {
        let info: ConnectionInfo = info.into_connection_info()?;
        match self.certificates() {
            Some(certificates) => Client::build_with_tls(info, certificates),
            None => Client::open(info),
        }
    }

    /// As the library below takes them, if there are any.
    pub(super) fn certificates(&self) -> Option<TlsCertificates> {
        self.option()?;
        let own = self.own.as_ref().map(|own| ClientTlsConfig {
            client_cert: own.certificate.clone(),
            client_key: own.key.clone(),
        });
        Some(TlsCertificates {
            client_tls: own,
            root_cert: self.authorities.clone(),
        })
    }
}

/// Shows which option was set, and nothing of what it was set to.
impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field(AUTHORITIES, &self.authorities.is_some())
            .field(OWN, &self.own.is_some())
            .finish()
    }
}

/// All certificates of a PEM, of which there has to be one.
fn certificates(
    option: &'static str,
    given: &[u8],
) -> Result<Vec<CertificateDer<'static>>, LockError> {
    const WHAT: &str = "certificates are to be PEM: `-----BEGIN CERTIFICATE-----`";
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(given).collect();
    match read {
        Ok(read) if read.is_empty() => Err(invalid(
            option,
            given,
            reason(WHAT, &pem::Error::NoItemsFound),
        )),
        Ok(read) => Ok(read),
        Err(error) => Err(invalid(option, given, reason(WHAT, &error))),
    }
}

fn reason(what: &str, error: &pem::Error) -> String {
    format!("{what}; {error}")
}

/// Shows nothing of what was given: it may be a key.
fn invalid(option: &'static str, given: &[u8], reason: String) -> LockError {
    LockError::InvalidOption {
        option,
        value: format!("({} bytes)", given.len()),
        reason,
    }
}
