//! Defaults, one file per kind (spec/daemonset.md 3).
