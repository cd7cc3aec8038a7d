//! Sandboxes: `POST /v1/sandboxes`, `GET /v1/sandboxes`, `GET` and `DELETE /v1/sandboxes/{id}`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use space_types::{
    ByteSize, Digest, MACHINE_CLASSES, MachineClass, NodeId, OperationId, ProjectId, Reason, SandboxId,
    SandboxState, TemplateRef,
};
use utoipa::{IntoParams, ToSchema};

use crate::{FieldErrors, Timestamp, limits, operations::Operation, page, validate};

/// Body of `POST /v1/sandboxes`. `{}` makes a sandbox with every default.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CreateSandbox {
    /// `name`, `name:tag` or `name@sha256:…`.
    #[schema(example = "base:latest")]
    pub template: String,
    /// Where it belongs. When absent: to the key's project, or the tenant's default one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub project_id: Option<ProjectId>,
    /// Processors. With `memory_mib` one of the machine classes: 1×128, 1×256, 1×512, 1×1024, 2×512, 2×1024,
    /// 2×2048, 4×2048, 4×4096, 8×8192.
    pub vcpus: u32,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// Size of the root drive in MiB, not below that of the template's image. 2048 when absent, or the
    /// image's size if that is larger.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 64, maximum = 1_048_576)]
    pub disk_mib: Option<u64>,
    /// Environment of every command in the sandbox. At most 32 KiB.
    pub env: BTreeMap<String, String>,
    /// Key-value pairs of your own, for finding sandboxes again. At most 64.
    pub labels: BTreeMap<String, String>,
}

impl Default for CreateSandbox {
    fn default() -> Self {
        Self {
            template: "base:latest".to_owned(),
            project_id: None,
            vcpus: u32::from(MachineClass::DEFAULT.vcpus),
            memory_mib: MachineClass::DEFAULT.memory.as_mib(),
            disk_mib: None,
            env: BTreeMap::new(),
            labels: BTreeMap::new(),
        }
    }
}

impl CreateSandbox {
    pub fn validate(&self) -> Result<(), FieldErrors> {
        let mut errors = FieldErrors::default();
        if let Err(error) = self.template.parse::<TemplateRef>() {
            errors.add("template", error.to_string());
        }
        self.check_class(&mut errors);
        let sizes = limits::DISK_MIB_MIN..=limits::DISK_MIB_MAX;
        errors.require(
            self.disk_mib.is_none_or(|mib| sizes.contains(&mib)),
            "disk_mib",
            format!("must be {} to {}", limits::DISK_MIB_MIN, limits::DISK_MIB_MAX),
        );
        validate::check_env(&mut errors, &self.env);
        validate::check_labels(&mut errors, &self.labels);
        errors.finish()
    }

    /// The machine class, if there is one of this size.
    pub fn machine_class(&self) -> Option<MachineClass> {
        // A size beyond any class must not overflow on the way to being refused.
        let known = MACHINE_CLASSES.iter().any(|class| class.memory.as_mib() == self.memory_mib);
        known.then(|| MachineClass::find(self.vcpus, ByteSize::mib(self.memory_mib)).ok()).flatten()
    }

    fn check_class(&self, errors: &mut FieldErrors) {
        if self.machine_class().is_some() {
            return;
        }
        let fitting: Vec<_> =
            MACHINE_CLASSES.iter().filter(|class| u32::from(class.vcpus) == self.vcpus).collect();
        if fitting.is_empty() {
            errors.add("vcpus", "must be 1, 2, 4 or 8");
        } else {
            let sizes: Vec<_> = fitting.iter().map(|class| class.memory.as_mib().to_string()).collect();
            errors
                .add("memory_mib", format!("with {} vcpus must be one of {}", self.vcpus, sizes.join(", ")));
        }
    }
}

/// A sandbox: a microVM with its own kernel and a writable disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Sandbox {
    pub id: SandboxId,
    pub project_id: ProjectId,
    pub state: SandboxState,
    /// Why it stopped or failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    pub template: SandboxTemplate,
    pub vcpus: u32,
    pub memory_mib: u64,
    pub disk_mib: u64,
    /// Names of the variables that every command gets. Their values are not shown.
    pub env_names: Vec<String>,
    pub labels: BTreeMap<String, String>,
    /// Where it runs or ran, once placed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_id: Option<NodeId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_version: Option<String>,
    /// The operation under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<OperationId>,
    pub created_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
}

/// The template that a sandbox was made from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SandboxTemplate {
    pub name: String,
    /// The tag it was asked for by. Absent when it was asked for by digest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// What the tag meant at that moment.
    pub digest: Digest,
}

/// Answer of `POST /v1/sandboxes` and `DELETE /v1/sandboxes/{id}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SandboxOperation {
    pub sandbox: Sandbox,
    pub operation: Operation,
}

/// Query of `GET /v1/sandboxes`. `label` may be repeated, so the server reads it with [`Self::from_pairs`].
#[derive(Debug, Clone, Default, PartialEq, Eq, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ListSandboxes {
    /// Entries on a page, 1 to 500; 50 when absent.
    #[param(minimum = 1, maximum = 500)]
    pub limit: Option<u32>,
    /// `next_cursor` of the page before.
    pub cursor: Option<String>,
    /// `key=value`, repeatable up to 8 times: sandboxes that carry all of these labels.
    #[param(value_type = Vec<String>, style = Form, explode, required = false)]
    pub label: Vec<(String, String)>,
    /// Sandboxes in this state. When absent: all but deleted ones.
    #[param(inline)]
    pub state: Option<SandboxState>,
    /// Sandboxes of this project. When absent: all that the key sees.
    pub project_id: Option<ProjectId>,
}

impl ListSandboxes {
    /// From the decoded pairs of a query string.
    pub fn from_pairs(pairs: impl IntoIterator<Item = (String, String)>) -> Result<Self, FieldErrors> {
        let (mut query, mut errors) = (Self::default(), FieldErrors::default());
        for (name, value) in pairs {
            match name.as_str() {
                "limit" => match value.parse() {
                    Ok(limit) => query.limit = Some(limit),
                    Err(_) => errors.add("limit", format!("must be 1 to {}", limits::PAGE_MAX)),
                },
                "cursor" => query.cursor = Some(value),
                "label" => match value.split_once('=') {
                    Some((key, value)) => query.label.push((key.to_owned(), value.to_owned())),
                    None => errors.add("label", "must be written key=value"),
                },
                "state" => match value.parse() {
                    Ok(state) => query.state = Some(state),
                    Err(_) => errors.add("state", format!("must be one of {}", state_codes())),
                },
                "project_id" => match value.parse() {
                    Ok(id) => query.project_id = Some(id),
                    Err(_) => errors.add("project_id", "not the id of a project"),
                },
                other => errors.add(other.chars().take(32).collect::<String>(), "no such query parameter"),
            }
        }
        query.check(&mut errors);
        errors.finish().map(|()| query)
    }

    /// The pairs that [`Self::from_pairs`] reads.
    pub fn to_pairs(&self) -> Vec<(&'static str, String)> {
        let mut pairs = Vec::new();
        pairs.extend(self.limit.map(|limit| ("limit", limit.to_string())));
        pairs.extend(self.cursor.clone().map(|cursor| ("cursor", cursor)));
        pairs.extend(self.label.iter().map(|(key, value)| ("label", format!("{key}={value}"))));
        pairs.extend(self.state.map(|state| ("state", state.code().to_owned())));
        pairs.extend(self.project_id.map(|id| ("project_id", id.to_string())));
        pairs
    }

    pub fn limit(&self) -> u32 {
        self.limit.unwrap_or(limits::PAGE_DEFAULT)
    }

    fn check(&self, errors: &mut FieldErrors) {
        page::check_page(errors, self.limit, self.cursor.as_deref());
        errors.require(
            self.label.len() <= limits::LABEL_FILTERS,
            "label",
            format!("at most {} conditions", limits::LABEL_FILTERS),
        );
        for (key, value) in &self.label {
            validate::check_label(errors, "label", key, value);
        }
    }
}

fn state_codes() -> String {
    SandboxState::ALL.map(SandboxState::code).join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(result: Result<(), FieldErrors>) -> Vec<String> {
        result.err().unwrap_or_default().into_vec().into_iter().map(|error| error.field).collect()
    }

    #[test]
    fn an_empty_body_means_the_defaults() {
        let request: CreateSandbox = serde_json::from_str("{}").unwrap();
        assert_eq!(request, CreateSandbox::default());
        assert_eq!(request.validate(), Ok(()));
    }

    #[test]
    fn every_class_is_accepted() {
        for class in MACHINE_CLASSES {
            let request = CreateSandbox {
                vcpus: class.vcpus.into(),
                memory_mib: class.memory.as_mib(),
                ..CreateSandbox::default()
            };
            assert_eq!(request.validate(), Ok(()));
        }
    }

    #[test]
    fn a_bad_field_is_named() {
        let default = CreateSandbox::default;
        let table = [
            (CreateSandbox { template: "../x".into(), ..default() }, "template"),
            (CreateSandbox { vcpus: 3, ..default() }, "vcpus"),
            (CreateSandbox { memory_mib: 500, ..default() }, "memory_mib"),
            (CreateSandbox { memory_mib: u64::MAX, ..default() }, "memory_mib"),
            (CreateSandbox { disk_mib: Some(0), ..default() }, "disk_mib"),
            (CreateSandbox { disk_mib: Some(u64::MAX), ..default() }, "disk_mib"),
            (CreateSandbox { env: [("a=b".into(), String::new())].into(), ..default() }, "env.a=b"),
            (CreateSandbox { labels: [("ä".into(), String::new())].into(), ..default() }, "labels.ä"),
        ];
        for (request, field) in table {
            assert_eq!(fields(request.validate()), [field]);
        }
    }

    #[test]
    fn a_list_query_survives_the_round_trip() {
        let query = ListSandboxes {
            limit: Some(7),
            cursor: Some("abc".into()),
            label: vec![("a".into(), "1=2".into()), ("b".into(), String::new())],
            state: Some(SandboxState::Running),
            project_id: Some(ProjectId::new()),
        };
        let pairs = query.to_pairs().into_iter().map(|(name, value)| (name.to_owned(), value));
        assert_eq!(ListSandboxes::from_pairs(pairs), Ok(query));
    }

    #[test]
    fn a_bad_query_parameter_is_named() {
        for (name, value) in [
            ("limit", "x"),
            ("limit", "0"),
            ("project_id", "sbx_0"),
            ("label", "x"),
            ("state", "up"),
            ("order", "a"),
        ] {
            let result = ListSandboxes::from_pairs([(name.to_owned(), value.to_owned())]);
            assert_eq!(fields(result.map(drop)), [name]);
        }
    }
}
