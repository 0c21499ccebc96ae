//! The three patch forms: JSON patch, merge patch, strategic merge patch.
