//! Tests of the machine: single inputs and their outputs.

mod cases;
