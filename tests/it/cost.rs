//! How many requests and scripts the server sees.

mod batch;
