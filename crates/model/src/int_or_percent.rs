//! Integer or percent values such as `maxUnavailable`, and how they scale.
