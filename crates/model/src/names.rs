//! DNS label and subdomain rules, qualified names, generated suffixes.
