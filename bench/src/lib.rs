//! Scale and latency benchmark with hollow nodes.
