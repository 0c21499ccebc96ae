//! Validation, one file per kind: every fault at once, each with its field path (spec/daemonset.md 4).
