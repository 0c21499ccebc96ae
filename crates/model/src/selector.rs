//! Label and field selectors: parse, match.
