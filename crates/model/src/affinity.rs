//! `nodeSelector` and node affinity terms against a node (spec/daemonset.md 8).
