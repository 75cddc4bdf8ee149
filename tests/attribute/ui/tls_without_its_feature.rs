use rlock_core::LockClient;

fn main() {
    let ca = std::fs::read("ca.pem").unwrap_or_default();
    let _ = LockClient::builder().tls_ca(ca);
    let _ = LockClient::builder().tls_client_certificate("certificate", "key");
}
