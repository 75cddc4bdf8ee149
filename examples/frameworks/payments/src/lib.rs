//! The gRPC service `shop.Payments`, with its client.

tonic::include_proto!("shop.Payments");

/// The request of the method `Pay`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Order {
    /// The number of the order.
    #[prost(uint64, tag = "1")]
    pub id: u64,
}

/// The response of the method `Pay`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Receipt {
    /// The fencing token of the payment.
    #[prost(uint64, tag = "1")]
    pub token: u64,
}
