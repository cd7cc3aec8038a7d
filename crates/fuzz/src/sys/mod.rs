//! The only `unsafe` code here.

mod allocator;
