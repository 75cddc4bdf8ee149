//! The certificate authorities that a client trusts, and the certificate that it presents.

use std::{error::Error, fmt};

use redis::{Client, ClientTlsConfig, ConnectionInfo, RedisResult, TlsCertificates};
use rustls::{
    RootCertStore,
    crypto::ring::default_provider,
    pki_types::{CertificateDer, PrivateKeyDer, pem, pem::PemObject},
    sign::CertifiedKey,
};

use crate::{error::LockError, store::provider::Provider};

/// The trusted authorities, and the client's own certificate.
#[derive(Clone, Default)]
pub(crate) struct Tls {
    authorities: Option<Vec<u8>>,
    own: Option<Own>,
}

/// The client's own certificate.
#[derive(Clone)]
enum Own {
    Given(ClientCertificate),
    Provided(Provider<ClientCertificate>),
}

/// A certificate of a client and its key, for
/// [`LockClientBuilder::tls_client_certificates`](crate::LockClientBuilder::tls_client_certificates).
///
/// `Debug` shows neither of them.
#[derive(Clone)]
pub struct ClientCertificate {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl ClientCertificate {
    /// Returns a certificate and its private key, both as PEM. The certificate includes the intermediate certificates, and the
    /// key has no password.
    #[must_use]
    pub fn new(certificate: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        Self {
            certificate: certificate.into(),
            key: key.into(),
        }
    }

    /// Returns an error if one of them is invalid, or if they do not belong together.
    fn check(&self) -> Result<(), LockError> {
        let Self { certificate, key } = self;
        let chain = certificates(OWN, certificate)?;
        let read = PrivateKeyDer::from_pem_slice(key).map_err(|error| {
            let what = "the key must be PEM without a password: `-----BEGIN PRIVATE KEY-----`";
            invalid(OWN, key, format!("{what}; {error}"))
        })?;
        let fits = CertifiedKey::from_der(chain, read, &default_provider());
        fits.map(drop).map_err(|error| {
            let what = "the key does not belong to the certificate, or is of an unknown kind";
            invalid(OWN, key, format!("{what}: {error}"))
        })
    }
}

impl fmt::Debug for ClientCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientCertificate").finish_non_exhaustive()
    }
}

const AUTHORITIES: &str = "tls_ca";
const OWN: &str = "tls_client_certificate";
const PROVIDER: &str = "tls_client_certificates";

impl Tls {
    pub(crate) const IS_SUPPORTED: bool = true;

    pub(crate) fn trust(&mut self, authorities: Vec<u8>) {
        self.authorities = Some(authorities);
    }

    pub(crate) fn present(&mut self, own: ClientCertificate) {
        self.own = Some(Own::Given(own));
    }

    pub(crate) fn present_from<F, E>(&mut self, provider: impl Fn() -> F + Send + Sync + 'static)
    where
        F: Future<Output = Result<ClientCertificate, E>> + Send + 'static,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        self.own = Some(Own::Provided(Provider::new(
            "the provider of client certificates failed",
            provider,
        )));
    }

    /// Returns these certificates with the client's present one, which a provider may have to be asked for.
    pub(in crate::store) async fn current(&self) -> RedisResult<Self> {
        let Some(Own::Provided(provider)) = &self.own else {
            return Ok(self.clone());
        };
        let own = provider.ask().await?;
        own.check()
            .map_err(|error| provider.failed(format!("{error:#}")))?;
        Ok(Self {
            authorities: self.authorities.clone(),
            own: Some(Own::Given(own)),
        })
    }

    /// Returns the name of an option that was set, if any.
    fn option(&self) -> Option<&'static str> {
        let authorities = self.authorities.as_ref().map(|_| AUTHORITIES);
        authorities.or(self.own.as_ref().map(|own| match own {
            Own::Given(_) => OWN,
            Own::Provided(_) => PROVIDER,
        }))
    }

    /// Returns an error if a certificate or the key is invalid, or if no connection uses it. Called before the client
    /// connects.
    pub(crate) fn check(&self, uses_tls: bool) -> Result<(), LockError> {
        self.check_certificates()?;
        match self.option() {
            Some(option) if !uses_tls => Err(LockError::invalid_option(
                option,
                "(a certificate)",
                "the URL does not use TLS; write `rediss://`, `rediss-sentinel://` or `rediss-cluster://`, or for Postgres `?sslmode=require`",
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
        match &self.own {
            Some(Own::Given(own)) => own.check(),
            Some(Own::Provided(_)) | None => Ok(()),
        }
    }

    /// Returns the configuration of these certificates, without a client's own one that a provider has not given yet.
    #[cfg(feature = "postgres")]
    pub(in crate::store) fn rustls(
        &self,
    ) -> Result<std::sync::Arc<rustls::ClientConfig>, Box<dyn Error + Send + Sync>> {
        let mut roots = RootCertStore::empty();
        match &self.authorities {
            Some(authorities) => {
                for authority in certificates(AUTHORITIES, authorities)? {
                    roots.add(authority)?;
                }
            }
            None => {
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            }
        }
        let provider = std::sync::Arc::new(default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider);
        let config = config.with_safe_default_protocol_versions()?;
        let config = config.with_root_certificates(roots);
        let config = match &self.own {
            Some(Own::Given(ClientCertificate { certificate, key })) => config
                .with_client_auth_cert(
                    certificates(OWN, certificate)?,
                    PrivateKeyDer::from_pem_slice(key)?,
                )?,
            Some(Own::Provided(_)) | None => config.with_no_client_auth(),
        };
        Ok(std::sync::Arc::new(config))
    }

    /// Returns a client of a server, which shows the certificate of [`current`](Self::current). redis-rs accepts
    /// certificates only with a URL for TLS.
    pub(in crate::store) fn open(&self, info: ConnectionInfo) -> RedisResult<Client> {
        if self.option().is_none() {
            return Client::open(info);
        }
        let own = match &self.own {
            Some(Own::Given(own)) => Some(ClientTlsConfig {
                client_cert: own.certificate.clone(),
                client_key: own.key.clone(),
            }),
            Some(Own::Provided(_)) | None => None,
        };
        let certificates = TlsCertificates {
            client_tls: own,
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
            .field(OWN, &matches!(self.own, Some(Own::Given(_))))
            .field(PROVIDER, &matches!(self.own, Some(Own::Provided(_))))
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
