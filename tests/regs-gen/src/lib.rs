//! Complete register tables of the supported IP versions, and the generator of core's tables.
