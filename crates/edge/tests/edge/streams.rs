//! What commands print, through the edge.

use std::sync::atomic::Ordering;

use space_api::sse::{CommandEvent, Frame, Parser};
use space_node_proto::edge::ResolveSandboxReply;
use space_types::{AttachClaims, CommandId, SandboxId};

use crate::kit::{FAR_END, Kit, guest, mark, printer::Progress, within};

struct Command<'a> {
    kit: &'a Kit,
    sandbox: SandboxId,
    id: CommandId,
}

impl<'a> Command<'a> {
    fn of(kit: &'a Kit) -> Self {
        let command = Self { kit, sandbox: SandboxId::new(), id: CommandId::new() };
        command.is_served();
        command
    }

    /// Where the worker is now.
    fn is_served(&self) {
        let reply = ResolveSandboxReply { state: "running".to_owned(), route: Some(self.kit.way()) };
        self.kit.control.set_sandbox(self.sandbox, reply);
    }

    fn path(&self) -> String {
        format!("/v1/sandboxes/{}/commands/{}/attach", self.sandbox, self.id)
    }

    fn url(&self) -> String {
        format!("http://{}{}", self.kit.address, self.path())
    }

    fn claims(&self) -> AttachClaims {
        AttachClaims { sandbox_id: self.sandbox, command_id: self.id, expires_at: FAR_END }
    }

    fn token(&self) -> String {
        self.kit.sign_attach(self.claims())
    }

    async fn attach(&self, after: Option<&str>) -> reqwest::Response {
        let request = client().get(self.url()).bearer_auth(self.token());
        let request = after.into_iter().fold(request, |request, id| request.header("Last-Event-ID", id));
        within(request.send()).await.unwrap()
    }
}

fn client() -> reqwest::Client {
    reqwest::Client::builder().no_proxy().build().unwrap()
}

fn code(response: &reqwest::Response) -> (u16, &str) {
    (response.status().as_u16(), mark(response))
}

fn is_at(kit: &Kit, printed: u64, exited: bool) {
    kit.worker.progress.send_replace(Progress { printed, exited });
}

/// A response, read event by event.
struct Reader {
    response: reqwest::Response,
    parser: Parser,
    frames: Vec<Frame>,
}

impl Reader {
    fn of(response: reqwest::Response) -> Self {
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self { response, parser: Parser::default(), frames: Vec::new() }
    }

    /// Id, and what was printed or how it ended.
    async fn next(&mut self) -> Option<(String, String)> {
        while self.frames.is_empty() {
            let bytes = within(self.response.chunk()).await.unwrap()?;
            self.parser.push(&bytes, &mut self.frames).unwrap();
        }
        let Frame::Event { name, data, id } = self.frames.remove(0) else { panic!("a heartbeat") };
        let what = match CommandEvent::parse(&name, &data).unwrap().unwrap() {
            CommandEvent::Stdout(output) => String::from_utf8(output.data.0).unwrap(),
            CommandEvent::Error(error) => error.problem.code.to_string(),
            CommandEvent::Exit(_) => "exit".to_owned(),
            other @ (CommandEvent::Command(_)
            | CommandEvent::Started(_)
            | CommandEvent::Stderr(_)
            | CommandEvent::Gap(_)) => panic!("{other:?}"),
        };
        Some((id.unwrap_or_default(), what))
    }

    async fn rest(&mut self) -> Vec<String> {
        let mut rest = Vec::new();
        while let Some((_, what)) = self.next().await {
            rest.push(what);
        }
        rest
    }
}

#[tokio::test]
async fn a_token_reads_its_command_to_the_end() {
    let kit = Kit::new().await;
    let command = Command::of(&kit);
    is_at(&kit, 2, false);
    let mut reader = Reader::of(command.attach(None).await);
    assert_eq!(reader.next().await, Some(("7.1".to_owned(), "1".to_owned())));
    is_at(&kit, 3, true);
    assert_eq!(reader.rest().await, ["2", "3", "exit"]);
    let in_query = format!("{}?token={}", command.url(), command.token());
    let mut reader = Reader::of(within(client().get(in_query).send()).await.unwrap());
    assert_eq!(reader.rest().await, ["1", "2", "3", "exit"]);
}

#[tokio::test]
async fn a_reader_goes_on_behind_what_it_has() {
    let kit = Kit::new().await;
    let command = Command::of(&kit);
    is_at(&kit, 3, true);
    assert_eq!(Reader::of(command.attach(Some("7.2")).await).rest().await, ["3", "exit"]);
    // What was seen of another generation says nothing of this one.
    assert_eq!(Reader::of(command.attach(Some("6.2")).await).rest().await, ["1", "2", "3", "exit"]);
    assert_eq!(code(&command.attach(Some("2")).await), (422, "invalid_field"));
}

#[tokio::test]
async fn nobody_reads_without_a_token_for_this_very_command() {
    let kit = Kit::new().await;
    let command = Command::of(&kit);
    let stranger = Command { id: CommandId::new(), ..Command::of(&kit) };
    let ended = kit.sign_attach(AttachClaims { expires_at: 1, ..command.claims() });
    let port = kit.token(kit.port(guest::mirror().await, false));
    for token in ["", "space_attach_x", &stranger.token(), &ended, &port] {
        let response = within(client().get(command.url()).bearer_auth(token).send()).await.unwrap();
        assert_eq!(code(&response), (401, "unauthorized"), "{token}");
        assert_eq!(response.headers()["www-authenticate"], "Bearer");
    }
    let posted = within(client().post(command.url()).bearer_auth(command.token()).send()).await.unwrap();
    assert_eq!(code(&posted), (405, "method_not_allowed"));
    let elsewhere = command.url().replace("/attach", "/stdin");
    let response = within(client().get(elsewhere).bearer_auth(command.token()).send()).await.unwrap();
    assert_eq!(code(&response), (404, "port_unknown"));
    assert_eq!(kit.control.resolved.load(Ordering::Relaxed), 0, "a stranger makes nobody ask");
}

#[tokio::test]
async fn under_a_ports_name_the_same_path_is_the_guests() {
    let kit = Kit::new().await;
    let command = Command::of(&kit);
    let port = kit.port(guest::mirror().await, true);
    let answer = kit.get(port, &command.path(), &[]).await.text().await.unwrap();
    assert!(answer.starts_with(&format!("GET {}\n", command.path())), "{answer}");
}

#[tokio::test]
async fn a_sandbox_that_does_not_run_is_told_of() {
    let kit = Kit::new().await;
    let command = Command::of(&kit);
    let paused = ResolveSandboxReply { state: "stopped".to_owned(), route: None };
    kit.control.set_sandbox(command.sandbox, paused);
    assert_eq!(code(&command.attach(None).await), (409, "sandbox_not_running"));
    let gone = Command { sandbox: SandboxId::new(), ..Command::of(&kit) };
    assert_eq!(code(&gone.attach(None).await), (404, "not_found"));
    kit.control.away.store(true, Ordering::Relaxed);
    assert_eq!(code(&Command::of(&kit).attach(None).await), (503, "unavailable"));
}

#[tokio::test]
async fn a_worker_that_moved_costs_its_readers_nothing() {
    let kit = Kit::new().await;
    let command = Command::of(&kit);
    is_at(&kit, 2, false);
    let mut first = Reader::of(command.attach(None).await);
    let mut second = Reader::of(command.attach(Some("7.1")).await);
    assert_eq!(first.next().await.unwrap().1, "1");
    assert_eq!((first.next().await.unwrap().1, second.next().await.unwrap().1), ("2".into(), "2".into()));
    within(kit.worker.restart()).await;
    command.is_served();
    is_at(&kit, 4, true);
    assert_eq!(first.rest().await, ["3", "4", "exit"]);
    assert_eq!(second.rest().await, ["3", "4", "exit"]);
}

#[tokio::test]
async fn an_outage_of_control_ends_no_stream() {
    let kit = Kit::new().await;
    let command = Command::of(&kit);
    is_at(&kit, 1, false);
    let mut reader = Reader::of(command.attach(None).await);
    assert_eq!(reader.next().await.unwrap().1, "1");
    kit.control.away.store(true, Ordering::Relaxed);
    is_at(&kit, 2, false);
    assert_eq!(reader.next().await.unwrap().1, "2");
    // The way is known for a while, so more may come.
    let mut late = Reader::of(command.attach(None).await);
    is_at(&kit, 3, true);
    assert_eq!(reader.rest().await, ["3", "exit"]);
    assert_eq!(late.rest().await, ["1", "2", "3", "exit"]);
}

#[tokio::test]
async fn a_reader_is_told_when_the_edge_goes() {
    let kit = Kit::new().await;
    let command = Command::of(&kit);
    is_at(&kit, 1, false);
    let mut reader = Reader::of(command.attach(None).await);
    assert_eq!(reader.next().await.unwrap().1, "1");
    kit.shut_down();
    assert_eq!(reader.rest().await, ["shutting_down"]);
}
