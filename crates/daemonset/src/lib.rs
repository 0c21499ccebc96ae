//! The DaemonSet brain: who should run what, and why. No IO, no clock.
