//! Tests of every rule through the memory backend.
