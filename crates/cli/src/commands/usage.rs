//! `space usage`: what sandboxes held, by UTC day and project, and all of it together.

use space_api::{
    client::Client,
    usage::{UsageDay, UsageQuery},
};

use super::project;
use crate::{
    args::{GlobalArgs, UsageArgs},
    error::CliError,
    output,
};

pub(super) async fn run(client: &Client, global: &GlobalArgs, args: &UsageArgs) -> Result<u8, CliError> {
    let project_id = project::find(client, args.project.project.as_deref()).await?;
    let query = UsageQuery { from: args.from.clone(), to: args.to.clone(), project_id };
    let usage = client.usage_get(&query).await?;
    if global.json {
        output::json(&usage)?;
        return Ok(0);
    }
    let days = usage.items.iter().map(|item| row(&item.day, &item.project_id.to_string(), item.into()));
    let total = usage.items.iter().map(Held::from).fold(Held::default(), Held::plus);
    let rows: Vec<_> = days.chain([row("TOTAL", "", total)]).collect();
    output::line(&output::table(
        ["DAY", "PROJECT", "CREATES", "SANDBOXES", "VCPUS", "MEMORY", "DISK"],
        &rows,
    ));
    Ok(0)
}

/// The numbers of one line.
#[derive(Debug, Clone, Copy, Default)]
struct Held {
    creates: u64,
    sandbox_seconds: u64,
    vcpu_seconds: u64,
    memory_mib_seconds: u64,
    disk_mib_seconds: u64,
}

impl From<&UsageDay> for Held {
    fn from(day: &UsageDay) -> Self {
        Self {
            creates: day.creates,
            sandbox_seconds: day.sandbox_seconds,
            vcpu_seconds: day.vcpu_seconds,
            memory_mib_seconds: day.memory_mib_seconds,
            disk_mib_seconds: day.disk_mib_seconds,
        }
    }
}

impl Held {
    fn plus(self, other: Self) -> Self {
        Self {
            creates: self.creates.saturating_add(other.creates),
            sandbox_seconds: self.sandbox_seconds.saturating_add(other.sandbox_seconds),
            vcpu_seconds: self.vcpu_seconds.saturating_add(other.vcpu_seconds),
            memory_mib_seconds: self.memory_mib_seconds.saturating_add(other.memory_mib_seconds),
            disk_mib_seconds: self.disk_mib_seconds.saturating_add(other.disk_mib_seconds),
        }
    }
}

fn row(day: &str, project: &str, held: Held) -> [String; 7] {
    [
        output::plain(day),
        project.to_owned(),
        held.creates.to_string(),
        time(held.sandbox_seconds),
        time(held.vcpu_seconds),
        size_hours(held.memory_mib_seconds),
        size_hours(held.disk_mib_seconds),
    ]
}

/// `40s`, `12m05s`, `312h05m`. Hours are not made into days: that is what is paid for.
fn time(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
    }
}

/// A size for an hour: `12.5 GiB·h` is 12.5 GiB for one hour, or one GiB for twelve and a half.
fn size_hours(mib_seconds: u64) -> String {
    // In tenths of a MiB for an hour.
    let mib = mib_seconds / 360;
    let tenths = |unit: u64| mib / unit;
    let (tenths, name) = match mib {
        0..10_240 => (tenths(1), "MiB"),
        10_240..10_485_760 => (tenths(1024), "GiB"),
        _ => (tenths(1024 * 1024), "TiB"),
    };
    format!("{}.{} {name}·h", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_in_hours() {
        assert_eq!([0, 59, 725, 3600, 1_123_500].map(time), ["0s", "59s", "12m05s", "1h00m", "312h05m"]);
    }

    #[test]
    fn sizes_are_for_an_hour() {
        // Half a minute of 512 MiB, an hour of it, ten hours of 2 GiB, a year of 10 TiB.
        let shown = [15_360, 512 * 3600, 20_480 * 3600, 10 * 1024 * 1024 * 3600 * 8760].map(size_hours);
        assert_eq!(shown, ["4.2 MiB·h", "512.0 MiB·h", "20.0 GiB·h", "87600.0 TiB·h"]);
    }
}
