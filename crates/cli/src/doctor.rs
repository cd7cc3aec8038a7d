//! `space doctor`: what this machine lacks, and how to get it.
//!
//! That `/dev/kvm` exists proves little: on many machines it opens, makes VMs, and can't run an ordinary guest.
//! So the last check boots one, with the kernel, agent and Firecracker that sandboxes use.

mod machine;
mod probe;

pub(crate) use machine::is_btrfs;

use std::time::Duration;

use camino::Utf8Path;
use serde::Serialize;

use crate::{
    args::{DoctorArgs, GlobalArgs},
    assets::Assets,
    error::{CliError, FAILURE},
    output, progress,
};

/// What one check found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    pub(crate) check: &'static str,
    pub(crate) status: Status,
    pub(crate) detail: String,
    /// How to mend it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fix: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Status {
    Ok,
    /// Sandboxes will run; something else may not.
    Warning,
    Failed,
}

impl Finding {
    fn ok(check: &'static str, detail: impl Into<String>) -> Self {
        Self { check, status: Status::Ok, detail: detail.into(), fix: None }
    }

    fn warning(check: &'static str, detail: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { check, status: Status::Warning, detail: detail.into(), fix: Some(fix.into()) }
    }

    fn failed(check: &'static str, detail: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { check, status: Status::Failed, detail: detail.into(), fix: Some(fix.into()) }
    }
}

pub(crate) async fn run(global: &GlobalArgs, args: &DoctorArgs) -> Result<u8, CliError> {
    let assets = Assets::locate(args.assets.as_deref())?;
    let findings = examine(&args.data, &assets, Duration::from_secs(args.deadline)).await;
    let failed = has_failed(&findings);
    if global.json {
        output::json(&serde_json::json!({ "ok": !failed, "checks": findings }))?;
    } else {
        output::line(&render(&findings));
        let verdict =
            if failed { "this machine can't run sandboxes yet" } else { "this machine can run sandboxes" };
        output::line(&format!("\n{verdict}"));
    }
    Ok(if failed { FAILURE } else { 0 })
}

/// Every check, the probe guest last; it is left out where it could only fail for a reason already told.
pub(crate) async fn examine(data: &Utf8Path, assets: &Assets, deadline: Duration) -> Vec<Finding> {
    let mut findings = machine::examine(data, assets);
    let hopeless =
        |finding: &Finding| finding.status == Status::Failed && ["kvm", "assets"].contains(&finding.check);
    findings.push(if findings.iter().any(hopeless) {
        Finding::failed("probe guest", "not tried", "mend what is said above first")
    } else {
        progress::during("booting a probe guest", probe::boot(assets, deadline)).await
    });
    findings
}

pub(crate) fn has_failed(findings: &[Finding]) -> bool {
    findings.iter().any(|finding| finding.status == Status::Failed)
}

pub(crate) fn render(findings: &[Finding]) -> String {
    let mut lines = Vec::new();
    for finding in findings {
        let mark = match finding.status {
            Status::Ok => "ok  ",
            Status::Warning => "warn",
            Status::Failed => "FAIL",
        };
        lines.push(format!("{mark}  {:<12} {}", finding.check, output::plain(&finding.detail)));
        lines.extend(finding.fix.iter().map(|fix| format!("                   → {fix}")));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_comes_with_what_to_do() {
        let findings = [
            Finding::ok("kvm", "/dev/kvm opens"),
            Finding::warning("memory", "1 GiB available", "close something"),
            Finding::failed("probe guest", "panicked:\u{1b}[0m", "use another machine"),
        ];
        insta::assert_snapshot!(render(&findings), @r"
        ok    kvm          /dev/kvm opens
        warn  memory       1 GiB available
                           → close something
        FAIL  probe guest  panicked:�[0m
                           → use another machine
        ");
        assert!(has_failed(&findings) && !has_failed(&findings[..2]));
    }
}
