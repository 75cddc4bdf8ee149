//! Certificates that are not the system's.

use std::fmt;

use redis::{Client, ClientTlsConfig, ConnectionInfo, RedisResult, TlsCertificates};
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
    /// The client's own certificate and its key.
    own: Option<ClientTlsConfig>,
}

const AUTHORITIES: &str = "tls_ca";
const OWN: &str = "tls_client_certificate";

impl Tls {
    pub(crate) fn trust(&mut self, authorities: Vec<u8>) {
        self.authorities = Some(authorities);
    }

    pub(crate) fn present(&mut self, certificate: Vec<u8>, key: Vec<u8>) {
        self.own = Some(ClientTlsConfig {
            client_cert: certificate,
            client_key: key,
        });
    }

    /// Which option was set, if one was.
    pub(crate) fn option(&self) -> Option<&'static str> {
        let authorities = self.authorities.as_ref().map(|_| AUTHORITIES);
        authorities.or(self.own.as_ref().map(|_| OWN))
    }

    /// Fails if a certificate or the key cannot be read, before anything is sent.
    pub(crate) fn check(&self) -> Result<(), LockError> {
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
            let what = "the key is to be PEM, and not encrypted: `-----BEGIN PRIVATE KEY-----`";
            invalid(OWN, client_key, format!("{what}; {error}"))
        })?;
        let fits = CertifiedKey::from_der(chain, key, &default_provider());
        fits.map(drop).map_err(|error| {
            let what = "the key is not the certificate's, or of an unknown kind";
            invalid(OWN, client_key, format!("{what}: {error}"))
        })
    }

    /// Returns a client of a server. Only a client whose URL speaks of TLS takes certificates.
    pub(super) fn open(&self, info: ConnectionInfo) -> RedisResult<Client> {
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
    let wrong = |error: pem::Error| {
        let what = "certificates are to be PEM: `-----BEGIN CERTIFICATE-----`";
        invalid(option, given, format!("{what}; {error}"))
    };
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(given).collect();
    let read = read.map_err(wrong)?;
    if read.is_empty() {
        return Err(wrong(pem::Error::NoItemsFound));
    }
    Ok(read)
}

/// Shows nothing of what was given: it may be a key.
fn invalid(option: &'static str, given: &[u8], reason: String) -> LockError {
    LockError::InvalidOption {
        option,
        value: format!("({} bytes)", given.len()),
        reason,
    }
}
