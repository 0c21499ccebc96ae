//! Exact resource quantities: `50m`, `64Mi`, `1e3`.
