//! Operations as methods. A JSON answer becomes a model; bytes and event streams are handed out as they come.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::schemas::annotation;
use super::{docstring, identifier};

const HEAD: &str = r#"class Operations:
    """One method for each operation of the API. Everything else of this package stands on these."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
"#;

/// The class, its methods in the order of their names.
pub(super) fn all(document: &Value) -> Result<String> {
    let mut methods = BTreeMap::new();
    for (path, item) in document["paths"].as_object().context("the document has no paths")? {
        for (verb, operation) in item.as_object().context("a path without operations")? {
            // A WebSocket, which is written by hand.
            if operation["responses"]["101"].is_null() {
                let id = operation["operationId"].as_str().context("an operation without a name")?;
                let method = Method { document, verb, path, operation };
                methods.insert(id, method.python(id).with_context(|| format!("the operation {id}"))?);
            }
        }
    }
    Ok(methods.into_values().fold(HEAD.to_owned(), |class, method| class + "\n" + &method))
}

struct Method<'a> {
    document: &'a Value,
    verb: &'a str,
    path: &'a str,
    operation: &'a Value,
}

/// What an operation answers.
enum Answers {
    Nothing,
    /// Models by status.
    Json(Vec<(String, String)>),
    /// Of this media type.
    Stream(String),
}

impl Method<'_> {
    fn python(&self, id: &str) -> Result<String> {
        let answers = self.answers()?;
        let returned = match &answers {
            Answers::Nothing => "None".to_owned(),
            Answers::Json(models) => {
                models.iter().map(|(_, model)| model.as_str()).collect::<Vec<_>>().join(" | ")
            }
            Answers::Stream(_) => "Answer".to_owned(),
        };
        let mut python = format!("    def {}(\n        self,\n", identifier(id));
        for parameter in self.signature()? {
            writeln!(python, "        {parameter},")?;
        }
        writeln!(python, "    ) -> {returned}:")?;
        python += &docstring(&self.description(), "        ");
        python += &self.body(&answers)?;
        Ok(python)
    }

    fn description(&self) -> String {
        let text = |name: &str| self.operation[name].as_str().unwrap_or_default();
        format!("{}.\n\n{}", text("summary"), text("description"))
    }

    fn parameters(&self, place: &str) -> Vec<&Value> {
        let all = self.operation["parameters"].as_array().map(Vec::as_slice).unwrap_or_default();
        all.iter().filter(|parameter| parameter["in"] == place).collect()
    }

    /// The media type of the body and its model, if it is JSON.
    fn content(&self) -> Result<Option<(&str, Option<String>)>> {
        let Some(content) = self.operation["requestBody"]["content"].as_object() else { return Ok(None) };
        let (kind, body) = content.iter().next().context("a body without a media type")?;
        let model =
            (kind == "application/json").then(|| annotation(self.document, &body["schema"])).transpose()?;
        Ok(Some((kind, model)))
    }

    fn signature(&self) -> Result<Vec<String>> {
        let mut all: Vec<String> =
            self.parameters("path").iter().map(|one| format!("{}: str", argument(one))).collect();
        let content = self.content()?;
        match &content {
            Some((_, Some(model))) => all.push(format!("body: {model}")),
            Some((_, None)) => all.push("content: Content".to_owned()),
            None => {}
        }
        let mut named = Vec::new();
        for parameter in self.parameters("query").into_iter().chain(self.parameters("header")) {
            let kind = annotation(self.document, &parameter["schema"])?;
            named.push(match (parameter["required"].as_bool(), kind.strip_suffix(" | None")) {
                (Some(true), _) => format!("{}: {kind}", argument(parameter)),
                (_, Some(kind)) => format!("{}: {kind} | None = None", argument(parameter)),
                (_, None) => format!("{}: {kind} | None = None", argument(parameter)),
            });
        }
        if self.verb == "post" {
            named.push("idempotency_key: str | None = None".to_owned());
        }
        if matches!(content, Some((_, None))) {
            named.push("repeat: bool = True".to_owned());
        }
        if !named.is_empty() {
            all.push("*".to_owned());
        }
        all.extend(named);
        Ok(all)
    }

    fn answers(&self) -> Result<Answers> {
        let mut models = Vec::new();
        for (status, response) in self.operation["responses"].as_object().context("no responses")? {
            let Some(content) = response["content"].as_object().filter(|_| status.starts_with('2')) else {
                continue;
            };
            // Where there is a choice the stream is the whole of it.
            if let Some(kind) = content.keys().find(|kind| *kind != "application/json") {
                return Ok(Answers::Stream(kind.clone()));
            }
            let model = annotation(self.document, &content["application/json"]["schema"])?;
            if !models.iter().any(|(_, known)| *known == model) {
                models.push((status.clone(), model));
            }
        }
        Ok(if models.is_empty() { Answers::Nothing } else { Answers::Json(models) })
    }

    fn body(&self, answers: &Answers) -> Result<String> {
        let mut arguments =
            format!("            \"{}\",\n            {},\n", self.verb.to_uppercase(), self.target());
        if let Answers::Stream(kind) = answers {
            writeln!(arguments, "            accept=\"{kind}\",")?;
        }
        let pairs = |place| {
            let pair =
                |one: &&Value| format!("\"{}\": {}", one["name"].as_str().unwrap_or_default(), argument(one));
            self.parameters(place).iter().map(pair).collect::<Vec<_>>()
        };
        let (query, mut headers) = (pairs("query"), pairs("header"));
        if self.verb == "post" {
            headers.push("\"Idempotency-Key\": idempotency_key".to_owned());
        }
        for (name, pairs) in [("query", query), ("headers", headers)] {
            if !pairs.is_empty() {
                writeln!(arguments, "            {name}={{{}}},", pairs.join(", "))?;
            }
        }
        match self.content()? {
            Some((_, Some(_))) => arguments += "            body=body,\n",
            Some((kind, None)) => {
                writeln!(
                    arguments,
                    "            content=content,\n            content_type=\"{kind}\",\n            repeat=repeat,"
                )?;
            }
            None => {}
        }
        if self.operation["tags"].as_array().is_some_and(|tags| tags.iter().any(|tag| tag == "files")) {
            // What the server gives the sandbox for a large tree or file.
            arguments += "            extra=300.0,\n";
        }
        Ok(match answers {
            Answers::Nothing => format!("        self._transport.call(\n{arguments}        )\n"),
            Answers::Stream(_) => format!("        return self._transport.open(\n{arguments}        )\n"),
            Answers::Json(models) => {
                format!(
                    "        status, answer = self._transport.call(\n{arguments}        )\n{}",
                    decoded(models)?
                )
            }
        })
    }

    /// The path as an f-string.
    fn target(&self) -> String {
        let mut target = self.path.to_owned();
        for parameter in self.parameters("path") {
            let name = parameter["name"].as_str().unwrap_or_default();
            target = target.replace(&format!("{{{name}}}"), &format!("{{segment({})}}", argument(parameter)));
        }
        if target == self.path { format!("\"{target}\"") } else { format!("f\"{target}\"") }
    }
}

fn argument(parameter: &Value) -> String {
    identifier(parameter["name"].as_str().unwrap_or_default())
}

fn decoded(models: &[(String, String)]) -> Result<String> {
    Ok(match models {
        [(_, model)] => format!("        return decode({model}, answer)\n"),
        [(status, first), (_, second)] => format!(
            "        return decode({first}, answer) if status == {status} else decode({second}, answer)\n"
        ),
        _ => bail!("more than two kinds of answers"),
    })
}
