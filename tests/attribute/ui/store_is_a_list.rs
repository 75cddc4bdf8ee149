use rlock_core::LockClient;

fn main() {
    let urls = vec![String::from("redis://a"), String::from("redis://b")];
    let _ = LockClient::connect(["redis://a", "redis://b"]);
    let _ = LockClient::builder().connect(urls.as_slice());
    let _ = LockClient::connect_lazy(&["redis://a", "redis://b"]);
    let _ = LockClient::connect_blocking(&urls);
    let _ = LockClient::builder().connect_blocking(urls);
}
