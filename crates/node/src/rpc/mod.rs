//! The Node service: what control may ask. Parses, authorises, checks the fence, and renders errors.

mod authorise;
mod parse;
mod serve;
mod service;

pub(crate) use serve::{ServeError, serve};
pub(crate) use service::NodeService;
