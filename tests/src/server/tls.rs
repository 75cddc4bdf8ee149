//! Certificates for one server.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};

/// An authority and a certificate for loopback that it signed, written to a directory.
#[derive(Debug)]
pub(super) struct Certificates {
    pub(super) ca_pem: String,
    pub(super) ca_path: PathBuf,
}

impl Certificates {
    pub(super) fn write_to(directory: &Path) -> Self {
        let (ca_pem, certificate, key) = issue().expect("certificates can be made");
        let ca_path = directory.join("ca.pem");
        for (path, content) in [
            (&ca_path, &ca_pem),
            (&directory.join("server.pem"), &certificate),
            (&directory.join("server.key"), &key),
        ] {
            fs::write(path, content).expect("certificates can be written");
        }
        Self { ca_pem, ca_path }
    }
}

/// Answers the authority, the server's certificate and its key, all as PEM.
fn issue() -> Result<(String, String, String), rcgen::Error> {
    let mut authority = CertificateParams::default();
    authority
        .distinguished_name
        .push(DnType::CommonName, "a test's own authority");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let authority_key = KeyPair::generate()?;
    let ca_pem = authority.self_signed(&authority_key)?.pem();
    let issuer = Issuer::new(authority, authority_key);

    let server = CertificateParams::new(["localhost".to_owned(), "127.0.0.1".to_owned()])?;
    let server_key = KeyPair::generate()?;
    let certificate = server.signed_by(&server_key, &issuer)?.pem();
    Ok((ca_pem, certificate, server_key.serialize_pem()))
}
