//! Whole-system tests: real server, real agents, real Docker.
