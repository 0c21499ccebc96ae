//! Three-way apply: what a manifest changes, given what it said last time and what is stored.
