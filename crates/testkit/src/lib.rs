//! A whole cluster in one process: seeded, faults to order, checkers of what must hold.

pub mod images;
