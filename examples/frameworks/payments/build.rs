//! Generates the gRPC service as `tonic-prost-build` would, but without a `.proto` file, because that needs
//! `protoc`.

use tonic_build::manual::{Builder, Method, Service};

fn main() {
    let pay = Method::builder()
        .name("pay")
        .route_name("Pay")
        .input_type("crate::Order")
        .output_type("crate::Receipt")
        .codec_path("tonic_prost::ProstCodec");
    let payments = Service::builder()
        .name("Payments")
        .package("shop")
        .method(pay.build());
    Builder::new().compile(&[payments.build()]);
}
