//! Event streams as bytes: a command's events and their names on the wire, positions, and the parser that the
//! client uses (WHATWG HTML, "Server-sent events").
//!
//! ```text
//!   id: 1.2                                   <generation>.<sequence>
//!   event: stdout
//!   data: {"offset":0,"data":"NDIK"}
//!
//!   : heartbeat                               each 15 s
//! ```

mod command_event;
mod parser;
mod position;

pub use command_event::{CommandEvent, Gap, Output, Started, StreamError};
pub use parser::{Frame, Parser, StreamLimitError};
pub use position::{Position, PositionError};
