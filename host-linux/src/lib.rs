//! amdev on Linux.
