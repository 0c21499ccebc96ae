//! The columns and cells that `get` shows for each kind.
