//! The builder's options for runtimes, for what other clients and logs show of the locks, and for TLS.

#[cfg(feature = "tls")]
use std::error::Error;
use std::sync::Arc;

use super::LockClientBuilder;
use crate::options::{Identity, TraceId};
#[cfg(feature = "tls")]
use crate::store::tls::ClientCertificate;

impl LockClientBuilder {
    /// Enables or disables a second connection to a server or cluster, on the Tokio runtime that
    /// the client is made in. Enabled by default if that runtime has timers and I/O.
    ///
    /// Tasks on that runtime send their requests over the second connection, without waking another
    /// thread. With a server nearby, this saves a third of the latency of an uncontended lock.
    /// Renewals and background releases use the connection on the client's own thread. A quorum
    /// opens no second connection.
    ///
    /// Tokio panics on a runtime without timers or I/O. The client therefore tries the runtime once,
    /// when it is made, and catches the panic; its message is printed. With `panic = "abort"` the
    /// client does not try, and opens no second connection.
    pub fn second_connection(mut self, enabled: bool) -> Self {
        self.second_connection = enabled;
        self
    }

    /// Sets the name and the version of the service, which [inspection](crate::LockClient::inspect) shows for a
    /// holder. Accepts 1 to 256 characters each.
    ///
    /// # Errors
    ///
    /// Making the client returns [`LockError::InvalidOption`](crate::LockError::InvalidOption) for an empty
    /// or longer name or version.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), rlock_core::LockError> {
    /// let client = rlock_core::LockClient::builder()
    ///     .service(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"))
    ///     .in_memory()?;
    /// let held = client.lock("order:42").acquire().await?;
    /// let info = client.inspect("order:42").await?.expect("held");
    /// let holder = info.holder.expect("this client");
    /// assert_eq!(holder.service.as_deref(), Some(env!("CARGO_PKG_NAME")));
    /// # drop(held);
    /// # Ok(())
    /// # }
    /// ```
    pub fn service(mut self, name: impl Into<String>, version: impl Into<String>) -> Self {
        self.options.identity = Identity {
            service: Some(name.into()),
            version: Some(version.into()),
        };
        self
    }

    /// Lets other clients inspect the locks of this client: `rlock ls`, [`list`](crate::LockClient::list) and
    /// [`inspect`](crate::LockClient::inspect) show them with their holder. They can also ask this client to release
    /// a lock, and make it do so. Enabled by default. Even if disabled, a leader announces its terms.
    ///
    /// If disabled, this client looks like one that is stuck, and others can still take its locks with
    /// [`force_release`](crate::LockClient::force_release).
    pub fn inspectable(mut self, enabled: bool) -> Self {
        self.options.inspectable = enabled;
        self
    }

    /// Sets a function that returns the id of the current trace. The client calls it for each acquire, and
    /// [inspection](crate::LockClient::inspect) shows the id of the holder's call. It must not block.
    ///
    /// # Panics
    ///
    /// If the function panics, the acquire panics.
    pub fn trace_id(
        mut self,
        current: impl Fn() -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.options.trace_id = Some(TraceId(Arc::new(current)));
        self
    }

    /// Leaves keys out of spans, logs and errors, because keys can be personal data. Disabled by default.
    ///
    /// The [label](crate::Lock::label) of the lock takes the place of its key, or `<redacted>` if it has none. Each key of
    /// the attribute has its template as its label. This applies to the text and the fields of each
    /// [`LockError`](crate::LockError), and to the `Debug` output of locks and guards. Methods such as [`Hold::key`](crate::Hold::key) still return the key, and the server still stores
    /// it.
    ///
    /// # Examples
    ///
    /// ```
    /// use rlock_core::LockClient;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), rlock_core::LockError> {
    /// let client = LockClient::builder().redact_keys(true).in_memory()?;
    /// let lock = client.lock("patient:ann@example.com").label("patient:<email>");
    /// let guard = lock.acquire().await?;
    /// assert_eq!(guard.key(), "patient:ann@example.com");
    /// client.shutdown().await?;
    /// let error = guard.release().await.expect_err("lost");
    /// assert!(error.to_string().starts_with("lock `patient:<email>` was lost"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn redact_keys(mut self, redact: bool) -> Self {
        self.options.redact_keys = redact;
        self
    }
}

#[cfg(feature = "tls")]
impl LockClientBuilder {
    /// Sets the trusted certificate authorities, as PEM, for TLS connections to servers and
    /// Sentinels. Replaces the authorities of the system and of `SSL_CERT_FILE`. Needs the feature
    /// `tls`.
    ///
    /// # Errors
    ///
    /// Making the client returns [`LockError::InvalidOption`](crate::LockError::InvalidOption) if the
    /// text has no valid certificate, or if the URL does not use TLS.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use rlock_core::LockClient;
    ///
    /// # async fn connect() -> Result<(), Box<dyn std::error::Error>> {
    /// let client = LockClient::builder()
    ///     .tls_ca(std::fs::read("/etc/locks/ca.pem")?)
    ///     .tls_client_certificate(
    ///         std::fs::read("/etc/locks/client.pem")?,
    ///         std::fs::read("/etc/locks/client.key")?,
    ///     )
    ///     .connect("rediss://redis.internal:6380/")
    ///     .await?;
    /// # drop(client);
    /// # Ok(())
    /// # }
    /// ```
    pub fn tls_ca(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.store.connection.tls.trust(pem.into());
        self
    }

    /// Sets the client's certificate for TLS connections to servers and Sentinels that require one
    /// (`tls-auth-clients yes`). `certificate` is PEM and includes the intermediate certificates.
    /// `key` is the private key as PEM, without a password. Needs the feature `tls`.
    ///
    /// # Errors
    ///
    /// Making the client returns [`LockError::InvalidOption`](crate::LockError::InvalidOption) if the
    /// certificate or the key is invalid, if they do not belong together, or if the URL does not use
    /// TLS.
    pub fn tls_client_certificate(
        mut self,
        certificate: impl Into<Vec<u8>>,
        key: impl Into<Vec<u8>>,
    ) -> Self {
        let own = ClientCertificate::new(certificate, key);
        self.store.connection.tls.present(own);
        self
    }

    /// Sets a provider of the client's certificate, for certificates that rotate. The client asks it at each attempt to
    /// connect to a server or a Sentinel, so a client that outlives its certificate connects again with the next one. Replaces
    /// [`tls_client_certificate`](Self::tls_client_certificate). Needs the feature `tls`.
    ///
    /// The returned future runs like that of [`credentials`](Self::credentials), and its errors are handled the same
    /// way: the client asks again if the provider fails, or if the certificate or the key is invalid.
    ///
    /// # Errors
    ///
    /// Making the client returns [`LockError::InvalidOption`](crate::LockError::InvalidOption) if the URL does not use TLS.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use rlock_core::{ClientCertificate, LockClient};
    ///
    /// # async fn connect() -> Result<(), rlock_core::LockError> {
    /// let client = LockClient::builder()
    ///     .tls_client_certificates(|| async {
    ///         let certificate = std::fs::read("/etc/locks/client.pem")?;
    ///         let key = std::fs::read("/etc/locks/client.key")?;
    ///         Ok::<_, std::io::Error>(ClientCertificate::new(certificate, key))
    ///     })
    ///     .connect("rediss://redis.internal:6380/")
    ///     .await?;
    /// # drop(client);
    /// # Ok(())
    /// # }
    /// ```
    pub fn tls_client_certificates<F, E>(
        mut self,
        provider: impl Fn() -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<ClientCertificate, E>> + Send + 'static,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        self.store.connection.tls.present_from(provider);
        self
    }
}

/// Without the feature, these do not compile, and the error names the feature.
#[cfg(not(feature = "tls"))]
#[doc(hidden)]
impl LockClientBuilder {
    pub fn tls_ca<P: EnabledByTls>(self, _pem: P) -> Self {
        self
    }

    pub fn tls_client_certificate<C: EnabledByTls, K>(self, _certificate: C, _key: K) -> Self {
        self
    }

    pub fn tls_client_certificates<P: EnabledByTls>(self, _provider: P) -> Self {
        self
    }
}

/// The requirement on certificates without the feature `tls`. No type implements it.
#[cfg(not(feature = "tls"))]
#[diagnostic::on_unimplemented(
    message = "TLS needs the feature `tls` of `rlock-core`",
    label = "the feature `tls` is not enabled",
    note = "enable it in Cargo.toml: `rlock-core = {{ version = \"…\", features = [\"tls\"] }}`"
)]
#[doc(hidden)]
pub trait EnabledByTls {}
