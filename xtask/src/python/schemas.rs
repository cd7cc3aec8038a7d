//! Schemas as dataclasses and enumerations, and any schema as an annotation.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::{docstring, identifier};

const PREFIX: &str = "#/components/schemas/";

/// Every schema that is a class: objects and enumerations. Ids, times and the like are Python's own types.
pub(super) fn all(document: &Value) -> Result<String> {
    let schemas = document["components"]["schemas"].as_object().context("the document has no schemas")?;
    let mut classes = Vec::new();
    for (name, schema) in schemas.iter().collect::<BTreeMap<_, _>>() {
        if schema["enum"].is_array() {
            classes.push(enumeration(name, schema)?);
        } else if is_model(schema) {
            classes.push(model(document, name, schema).with_context(|| format!("the schema {name}"))?);
        }
    }
    Ok(classes.join("\n\n"))
}

/// `__all__`: the names of all classes.
pub(super) fn exports(document: &Value) -> Result<String> {
    let schemas = document["components"]["schemas"].as_object().context("the document has no schemas")?;
    let classes: BTreeMap<_, _> =
        schemas.iter().filter(|(_, schema)| schema["enum"].is_array() || is_model(schema)).collect();
    let lines: Vec<String> = classes.keys().map(|name| format!("    \"{}\",\n", class_name(name))).collect();
    Ok(format!("__all__ = [\n{}]\n", lines.concat()))
}

fn is_model(schema: &Value) -> bool {
    schema["properties"].is_object()
}

fn enumeration(name: &str, schema: &Value) -> Result<String> {
    let mut class = format!("class {name}(OpenEnum):\n");
    if let Some(description) = schema["description"].as_str() {
        class += &docstring(description, "    ");
        class.push('\n');
    }
    for word in schema["enum"].as_array().into_iter().flatten() {
        let word = word.as_str().context("an enumeration of something else than strings")?;
        writeln!(class, "    {} = \"{word}\"", identifier(word).trim_end_matches('_').to_uppercase())?;
    }
    Ok(class)
}

fn model(document: &Value, name: &str, schema: &Value) -> Result<String> {
    let class_name = class_name(name);
    let mut class = format!("@dataclass(frozen=True, kw_only=True)\nclass {class_name}:\n");
    let description = schema["description"].as_str().unwrap_or(name);
    class += &docstring(description, "    ");
    class.push('\n');
    // What the server refuses to know more of is a request: nothing is sent that was not asked for.
    let is_request = schema["additionalProperties"] == Value::Bool(false);
    let page_of = name.strip_prefix("Page_");
    for (property, schema_of) in
        schema["properties"].as_object().into_iter().flatten().collect::<BTreeMap<_, _>>()
    {
        let kind = match page_of {
            Some(item) if property == "items" => format!("list[{item}]"),
            _ => annotation(document, schema_of).with_context(|| format!("the property {property}"))?,
        };
        let required = schema["required"].as_array().is_some_and(|all| all.iter().any(|one| one == property));
        for line in schema_of["description"].as_str().unwrap_or_default().lines() {
            writeln!(class, "    #: {line}")?;
        }
        let kind = if required { kind } else { with_default(&kind, is_request) };
        writeln!(class, "    {}: {kind}", identifier(property))?;
    }
    if schema["properties"].as_object().is_some_and(serde_json::Map::is_empty) {
        class += "    pass\n";
    }
    Ok(class)
}

fn with_default(kind: &str, is_request: bool) -> String {
    if kind.ends_with("| None") {
        return format!("{kind} = None");
    }
    if is_request {
        return format!("{kind} | None = None");
    }
    match kind.split('[').next().unwrap_or_default() {
        "bool" => "bool = False".to_owned(),
        container @ ("list" | "dict") => format!("{kind} = _field(default_factory={container})"),
        _ => format!("{kind} | None = None"),
    }
}

/// `Page_Sandbox` is a `SandboxPage`.
fn class_name(name: &str) -> String {
    name.strip_prefix("Page_").map_or_else(|| name.to_owned(), |item| format!("{item}Page"))
}

/// The type that values of a schema have in Python.
pub(super) fn annotation(document: &Value, schema: &Value) -> Result<String> {
    if let Some(reference) = schema["$ref"].as_str() {
        let name = reference.strip_prefix(PREFIX).context("a reference to something else than a schema")?;
        let target = &document["components"]["schemas"][name];
        let is_class = is_model(target) || target["enum"].is_array();
        return if is_class { Ok(class_name(name)) } else { annotation(document, target) };
    }
    if let Some(choices) = schema["oneOf"].as_array() {
        let kinds: Vec<String> =
            choices.iter().map(|choice| annotation(document, choice)).collect::<Result<_>>()?;
        return Ok(kinds.join(" | "));
    }
    if let Some(kinds) = schema["type"].as_array() {
        let kinds: Vec<String> =
            kinds.iter().map(|kind| plain(document, kind, schema)).collect::<Result<_>>()?;
        return Ok(kinds.join(" | "));
    }
    plain(document, &schema["type"], schema)
}

fn plain(document: &Value, kind: &Value, schema: &Value) -> Result<String> {
    Ok(match kind.as_str() {
        Some("null") => "None".to_owned(),
        Some("boolean") => "bool".to_owned(),
        Some("integer") => "int".to_owned(),
        Some("number") => "float".to_owned(),
        Some("string") if schema["format"] == "date-time" => "datetime".to_owned(),
        Some("string") if schema["contentEncoding"] == "base64" => "bytes".to_owned(),
        Some("string") => "str".to_owned(),
        Some("array") => format!("list[{}]", annotation(document, &schema["items"])?),
        Some("object") if schema["additionalProperties"].is_object() => {
            format!("dict[str, {}]", annotation(document, &schema["additionalProperties"])?)
        }
        _ => bail!("a schema of no known kind: {schema}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn schemas_become_annotations() {
        let document = json!({"components": {"schemas": {
            "Id": {"type": "string", "pattern": "x"}, "Page_A": {"type": "object", "properties": {}},
        }}});
        let table = [
            (json!({"$ref": "#/components/schemas/Id"}), "str"),
            (json!({"$ref": "#/components/schemas/Page_A"}), "APage"),
            (
                json!({"oneOf": [{"type": "string", "format": "date-time"}, {"type": "null"}]}),
                "datetime | None",
            ),
            (json!({"type": ["integer", "null"]}), "int | None"),
            (json!({"type": "array", "items": {"type": "boolean"}}), "list[bool]"),
            (json!({"type": "object", "additionalProperties": {"type": "string"}}), "dict[str, str]"),
        ];
        for (schema, expected) in table {
            assert_eq!(annotation(&document, &schema).unwrap(), expected);
        }
        assert!(annotation(&document, &json!({"type": "later"})).is_err());
    }

    #[test]
    fn what_may_be_absent_has_a_default_and_a_request_sends_nothing_for_it() {
        assert_eq!(with_default("bool", false), "bool = False");
        assert_eq!(with_default("bool", true), "bool | None = None");
        assert_eq!(with_default("list[str]", false), "list[str] = _field(default_factory=list)");
        assert_eq!(with_default("str | None", true), "str | None = None");
    }
}
