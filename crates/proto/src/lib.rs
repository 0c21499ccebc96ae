//! The gRPC contract of Muster, generated from `proto/muster/v1`. Read the `.proto` files:
//! their comments are the reference.

/// Version 1 of the contract.
#[allow(missing_docs, unreachable_pub, clippy::all)]
pub mod v1 {
    tonic::include_proto!("muster.v1");
}

/// gRPC's own health checking, which probes of pods speak.
#[allow(missing_docs, unreachable_pub, clippy::all)]
pub mod health {
    tonic::include_proto!("grpc.health.v1");
}

/// Largest gRPC message either side accepts, in bytes. Above the API's own object limits
/// (3 MiB request bodies), so that an oversized object is refused with a reason, not cut by the transport.
pub const MAX_MESSAGE_BYTES: usize = 16 * 1024 * 1024;
