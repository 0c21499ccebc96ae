//! Connect, retry, typed calls, reflector, contexts.
