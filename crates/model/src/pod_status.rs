//! What a pod's status says: readiness, availability at a given time, terminal phases.
