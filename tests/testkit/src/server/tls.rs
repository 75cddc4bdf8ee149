//! Makes certificates for tests, signed by an authority of their own.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};

/// Signs certificates for loopback, and for clients.
pub struct Authority {
    ca_pem: String,
    /// The names in the certificates of servers.
    hosts: Vec<&'static str>,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// Creates an authority.
    #[must_use]
    #[allow(clippy::new_without_default, reason = "each is another")]
    pub fn new() -> Self {
        Self::of(vec!["localhost", "127.0.0.1"])
    }

    /// Creates an authority that certifies servers for this host only.
    #[must_use]
    pub fn for_host(host: &'static str) -> Self {
        Self::of(vec![host])
    }

    fn of(hosts: Vec<&'static str>) -> Self {
        let mut params = CertificateParams::default();
        params
            .distinguished_name
            .push(DnType::CommonName, "a test's own authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let key = KeyPair::generate().expect("a key can be made");
        let ca = params.self_signed(&key).expect("it signs itself");
        Self {
            ca_pem: ca.pem(),
            hosts,
            issuer: Issuer::new(params, key),
        }
    }

    /// Its own certificate, as PEM.
    #[must_use]
    pub fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    /// Returns a certificate for a client of this name, and its key, both as PEM.
    #[must_use]
    pub fn client_certificate(&self, name: &str) -> (String, String) {
        self.sign(&[name])
    }

    fn sign(&self, names: &[&str]) -> (String, String) {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let params = CertificateParams::new(names).expect("names that can be certified");
        let key = KeyPair::generate().expect("a key can be made");
        let certificate = params.signed_by(&key, &self.issuer);
        let certificate = certificate.expect("it signs").pem();
        (certificate, key.serialize_pem())
    }

    /// Writes a loopback certificate for a server to a directory. Returns the path of the
    /// authority's certificate.
    pub(crate) fn certify(&self, directory: &Path) -> PathBuf {
        let (certificate, key) = self.sign(&self.hosts);
        let ca_path = directory.join("ca.pem");
        for (path, content) in [
            (&ca_path, &self.ca_pem),
            (&directory.join("server.pem"), &certificate),
            (&directory.join("server.key"), &key),
        ] {
            fs::write(path, content).expect("certificates can be written");
        }
        ca_path
    }
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").finish_non_exhaustive()
    }
}
