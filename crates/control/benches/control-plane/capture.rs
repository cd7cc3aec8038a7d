//! One create, as the database saw it, turned into a script for `pgbench`: the floor runs the same statements because
//! they are these statements, and can't fall behind the code.
//!
//! The server logs what it executes. Statements are put together by connection and transaction, in the order in which
//! transactions began. Parameters become literals, but for what differs from create to create: ids that were made
//! during the capture, and the node.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use reqwest::Method;
use uuid::Uuid;

use crate::installation::Installation;

pub(crate) struct Script {
    pub(crate) text: String,
    pub(crate) statements: usize,
    pub(crate) transactions: usize,
}

/// So that connections are open, statements prepared, and every node has a worker for the tenant.
const WARM_UP: usize = 400;

pub(crate) async fn create(installation: &mut Installation) -> Result<Script> {
    for _ in 0..WARM_UP {
        installation.create().await?;
    }
    // Their last heartbeats are good for longer than this takes.
    installation.hush_nodes().await;
    let since = Uuid::now_v7();
    let before = log(installation)?.len();
    set_logging(installation, "all").await?;
    installation.create().await?;
    set_logging(installation, "none").await?;
    let nodes = nodes(installation).await?;
    let logged = log(installation)?.split_off(before);
    let statements = parse(&logged);
    ensure!(!statements.is_empty(), "nothing was logged");
    script(&statements, since, &nodes)
}

async fn set_logging(installation: &Installation, what: &str) -> Result<()> {
    let set = format!("alter system set log_statement = '{what}'");
    // Connections read the setting when the signal has reached them, which nothing tells.
    let sql =
        ["alter system set log_line_prefix = '%p '", &set, "select pg_reload_conf()", "select pg_sleep(0.5)"];
    installation.sql(&sql).await
}

async fn nodes(installation: &Installation) -> Result<Vec<Uuid>> {
    let page = installation.send(Method::GET, "/v1/nodes?limit=100", None).await?;
    let items = page["items"].as_array().context("nodes")?;
    let id = |node: &serde_json::Value| Uuid::try_parse(node["id"].as_str()?.strip_prefix("node_")?).ok();
    items.iter().map(|node| id(node).context("a node's id")).collect()
}

/// The server's log; the URL names its directory.
fn log(installation: &Installation) -> Result<String> {
    let (_, dir) = installation.database_url().rsplit_once("host=").context("a socket")?;
    Ok(std::fs::read_to_string(format!("{dir}/log"))?)
}

#[derive(Debug, Default)]
struct Statement {
    connection: u32,
    sql: String,
    parameters: Vec<Option<String>>,
}

fn parse(log: &str) -> Vec<Statement> {
    let mut statements: Vec<Statement> = Vec::new();
    // Which text a continuation line belongs to.
    let mut details = String::new();
    let mut in_details = false;
    let finish = |statements: &mut Vec<Statement>, details: &mut String| {
        if let Some(last) = statements.last_mut().filter(|_| !details.is_empty()) {
            last.parameters = parameters(details);
        }
        details.clear();
    };
    for line in log.lines() {
        if let Some(more) = line.strip_prefix('\t') {
            let text =
                if in_details { Some(&mut details) } else { statements.last_mut().map(|last| &mut last.sql) };
            if let Some(text) = text {
                text.push('\n');
                text.push_str(more);
            }
            continue;
        }
        let Some((connection, rest)) = line.split_once(' ') else { continue };
        let Ok(connection) = connection.parse() else { continue };
        if let Some(told) = rest.strip_prefix("DETAIL:  ") {
            in_details = true;
            details = told.split_once(": ").map_or(String::new(), |(_, list)| list.to_owned());
        } else if let Some(told) = rest.strip_prefix("LOG:  ") {
            finish(&mut statements, &mut details);
            in_details = false;
            let sql = told
                .strip_prefix("statement: ")
                .or_else(|| Some(told.strip_prefix("execute ")?.split_once(": ")?.1));
            if let Some(sql) = sql {
                statements.push(Statement { connection, sql: sql.to_owned(), parameters: Vec::new() });
            }
        }
    }
    finish(&mut statements, &mut details);
    let ours: Vec<u32> =
        statements.iter().filter(|it| it.sql.contains("log_statement")).map(|it| it.connection).collect();
    // Under load one notification tells of many changes.
    statements.retain(|it| !ours.contains(&it.connection) && !it.sql.contains("pg_notify"));
    statements
}

/// `$1 = 'it''s', $2 = NULL`
fn parameters(text: &str) -> Vec<Option<String>> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some((_, value)) = rest.split_once(" = ") {
        let Some(quoted) = value.strip_prefix('\'') else {
            found.push(None);
            rest = value.strip_prefix("NULL").unwrap_or(value);
            continue;
        };
        let mut end = 0;
        while let Some(at) = quoted[end..].find('\'') {
            end += at;
            if quoted[end + 1..].starts_with('\'') {
                end += 2;
            } else {
                break;
            }
        }
        found.push(Some(quoted[..end].to_owned()));
        rest = &quoted[end + 1..];
    }
    found
}

/// Transactions in the order of their beginnings; a statement outside of one is one.
fn transactions(statements: &[Statement]) -> Vec<Vec<&Statement>> {
    let mut all: Vec<Vec<&Statement>> = Vec::new();
    let mut open: BTreeMap<u32, usize> = BTreeMap::new();
    for statement in statements {
        let word = statement.sql.trim().to_ascii_lowercase();
        if word.starts_with("begin") {
            open.insert(statement.connection, all.len());
            all.push(Vec::new());
        }
        match open.get(&statement.connection) {
            Some(at) => all[*at].push(statement),
            None => all.push(vec![statement]),
        }
        if word.starts_with("commit") || word.starts_with("rollback") {
            open.remove(&statement.connection);
        }
    }
    all
}

fn script(statements: &[Statement], since: Uuid, nodes: &[Uuid]) -> Result<Script> {
    let transactions = transactions(statements);
    let mut made: Vec<Uuid> = Vec::new();
    let mut body = String::new();
    for statement in transactions.iter().flatten() {
        let mut sql = statement.sql.clone();
        // From the last, so that $1 is not found in $12.
        for (index, value) in statement.parameters.iter().enumerate().rev() {
            let place = format!("${}", index + 1);
            let literal = match value {
                None => "null".to_owned(),
                Some(text) => literal(text, since, nodes, &mut made),
            };
            sql = sql.replace(&place, &literal);
        }
        body.push_str(sql.trim().trim_end_matches(';'));
        body.push_str(";\n");
    }
    let ids: Vec<String> = (0..made.len()).map(|id| format!("gen_random_uuid() as id{id}")).collect();
    ensure!(!ids.is_empty(), "no id was made during a create");
    let text = format!(
        "select {}, (select id from nodes offset (random() * {})::int limit 1) as node \\gset\n{body}",
        ids.join(", "),
        nodes.len() - 1,
    );
    Ok(Script { text, statements: statements.len(), transactions: transactions.len() })
}

fn literal(text: &str, since: Uuid, nodes: &[Uuid], made: &mut Vec<Uuid>) -> String {
    // Without its type, PostgreSQL would take a large number between quotes for a small one.
    if text.parse::<i64>().is_ok_and(|number| i32::try_from(number).is_err()) {
        return text.to_owned();
    }
    let Ok(id) = Uuid::try_parse(text) else {
        // For pgbench a colon may begin a variable, also between quotes, which are doubled already.
        return format!("e'{}'", text.replace('\\', "\\\\").replace(':', "\\x3a"));
    };
    if nodes.contains(&id) {
        return ":node".to_owned();
    }
    // A UUIDv7 begins with the time at which it was made.
    if id.get_version_num() == 7 && id > since {
        let at = made.iter().position(|known| *known == id).unwrap_or_else(|| {
            made.push(id);
            made.len() - 1
        });
        return format!(":id{at}");
    }
    format!("'{id}'")
}
