//! Arguments of `space usage`.

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct UsageArgs {
    /// The first day, in UTC [default: 29 days before the last]
    #[arg(long, value_name = "YYYY-MM-DD")]
    pub(crate) from: Option<String>,
    /// The last day, inclusive; at most 366 in all [default: today]
    #[arg(long, value_name = "YYYY-MM-DD")]
    pub(crate) to: Option<String>,
    #[command(flatten)]
    pub(crate) project: super::ProjectArgs,
}
