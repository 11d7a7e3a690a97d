//! Seccomp filters.
