//! JSON and YAML in and out: several documents, `List` kinds, unknown and duplicate fields with their paths, input limits.
