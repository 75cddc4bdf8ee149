//! The options for TLS.

use super::LockClientBuilder;

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
        self.redis.connection.tls.trust(pem.into());
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
        self.redis
            .connection
            .tls
            .present(certificate.into(), key.into());
        self
    }
}
