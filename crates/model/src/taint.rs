//! Taints, tolerations and the table that matches them (spec/daemonset.md 7).
