//! CA, certificates, join tokens and kubeconfig text; no network.
