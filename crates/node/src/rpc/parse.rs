//! Requests as they must be. Control checks users' input; this node checks control's, because a mistake
//! there must not become a VM without limits here.

use space_node_proto::node::{EnsureSandboxRequest, SandboxConfig};
use space_types::{ByteSize, Digest, SandboxId, TenantId};
use tonic::Status;

use crate::{config::CapacityConfig, vm::Ensure};

const MOST_VCPUS: u32 = 32;
const LEAST_MEMORY: ByteSize = ByteSize::mib(64);
const LONGEST_HOSTNAME: usize = 63;
/// What fits into one message to a worker, with room for the rest of it.
const LARGEST_ENV: usize = 32 * 1024;

pub(super) fn parse_ensure(
    request: EnsureSandboxRequest,
    capacity: &CapacityConfig,
) -> Result<Ensure, Status> {
    let config = request.config.ok_or_else(|| invalid("config", "is missing"))?;
    check_config(&config, capacity)?;
    Ok(Ensure {
        sandbox: parse_sandbox(&request.sandbox_id)?,
        tenant: request
            .tenant_id
            .parse::<TenantId>()
            .map_err(|error| invalid("tenant_id", &error.to_string()))?,
        generation: request.generation,
        config,
    })
}

pub(super) fn parse_sandbox(text: &str) -> Result<SandboxId, Status> {
    text.parse().map_err(|error: space_types::ParseIdError| invalid("sandbox_id", &error.to_string()))
}

fn check_config(config: &SandboxConfig, capacity: &CapacityConfig) -> Result<(), Status> {
    if !(1..=MOST_VCPUS).contains(&config.vcpus) {
        return Err(invalid("config.vcpus", &format!("is between 1 and {MOST_VCPUS}")));
    }
    let memory = ByteSize::bytes(config.memory_bytes);
    if memory < LEAST_MEMORY || !memory.as_bytes().is_multiple_of(ByteSize::mib(1).as_bytes()) {
        return Err(invalid("config.memory_bytes", "is whole MiB, 64 at least"));
    }
    let template = config.template.as_ref().ok_or_else(|| invalid("config.template", "is missing"))?;
    if template.digest.parse::<Digest>().is_err() {
        return Err(invalid("config.template.digest", "is no digest"));
    }
    let disk = ByteSize::bytes(config.disk_bytes);
    if config.disk_bytes < template.size_bytes
        || disk > capacity.max_disk()
        || !config.disk_bytes.is_multiple_of(4096)
    {
        let most = capacity.max_disk();
        return Err(invalid(
            "config.disk_bytes",
            &format!("is whole pages, the image's size at least, {most} at most"),
        ));
    }
    if config.hostname.is_empty() || config.hostname.len() > LONGEST_HOSTNAME {
        return Err(invalid("config.hostname", "has 1 to 63 bytes"));
    }
    let env: usize = config.env.iter().map(|(name, value)| name.len() + value.len() + 8).sum();
    if env > LARGEST_ENV {
        return Err(invalid("config.env", "has more than 32 KiB"));
    }
    Ok(())
}

fn invalid(field: &str, problem: &str) -> Status {
    Status::invalid_argument(format!("{field}: {problem}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use space_node_proto::node::TemplateArtifact;

    fn request() -> EnsureSandboxRequest {
        let template = TemplateArtifact {
            digest: Digest::from_sha256([1; 32]).to_string(),
            location: "file:///image".to_owned(),
            size_bytes: 4096,
        };
        let config = SandboxConfig {
            vcpus: 1,
            memory_bytes: ByteSize::mib(128).as_bytes(),
            disk_bytes: 8192,
            template: Some(template),
            hostname: "box".to_owned(),
            env: std::collections::HashMap::new(),
        };
        EnsureSandboxRequest {
            sandbox_id: SandboxId::new().to_string(),
            tenant_id: TenantId::new().to_string(),
            generation: 1,
            fence: 1,
            config: Some(config),
        }
    }

    #[test]
    fn a_whole_request_parses() {
        parse_ensure(request(), &CapacityConfig::default()).unwrap();
    }

    #[test]
    fn each_field_out_of_range_is_named() {
        let change = |edit: fn(&mut SandboxConfig)| {
            let mut request = request();
            edit(request.config.as_mut().unwrap());
            parse_ensure(request, &CapacityConfig::default()).unwrap_err().message().to_owned()
        };
        assert!(change(|config| config.vcpus = 0).contains("vcpus"));
        assert!(change(|config| config.memory_bytes += 1).contains("memory_bytes"));
        assert!(change(|config| config.disk_bytes = 0).contains("disk_bytes"));
        assert!(change(|config| config.disk_bytes = u64::MAX).contains("disk_bytes"));
        assert!(change(|config| config.hostname.clear()).contains("hostname"));
        assert!(change(|config| config.template = None).contains("template"));
        assert!(change(|config| drop(config.env.insert("A".to_owned(), "x".repeat(40_000)))).contains("env"));
    }
}
