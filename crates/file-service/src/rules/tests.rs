//! Tests of the rules that no backend is needed for.
