//! What each request does.

use prost::Message;
use rustix::system::sethostname;
use space_guest_proto::{
    HostFrame, PROTOCOL_MAX, PROTOCOL_MIN, Reply, Request, feature, limits,
    message::{
        AddEntropyReply, AddEntropyRequest, AttachCommandReply, AttachCommandRequest, CreateCommandReply,
        CreateCommandRequest, GetCommandReply, HealthReply, Hello, ListCommandsReply, ListCommandsRequest,
        NoticeKind, PersonaliseReply, PersonaliseRequest, RefusalCode, ResizeTerminalReply,
        ResizeTerminalRequest, Role, SetClockReply, SetClockRequest, ShutdownReply, SignalCommandReply,
        SignalCommandRequest, WriteStdinRequest,
    },
    validate::{self, InvalidRequest},
};

use super::Agent;
use crate::{
    clock,
    command::{stdin::Writer, table::Created},
    memory,
};

/// A request that is not carried out, and why.
pub(super) struct Refused {
    code: RefusalCode,
    message: String,
}

impl Refused {
    pub(super) fn new(code: RefusalCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

impl From<RefusalCode> for Refused {
    fn from(code: RefusalCode) -> Self {
        Self::new(code, "")
    }
}

impl From<InvalidRequest> for Refused {
    fn from(error: InvalidRequest) -> Self {
        Self::new(RefusalCode::Invalid, error.to_string())
    }
}

/// How a request is answered: now, or (`None`) later by whoever finishes it.
type Answer = Result<Option<Reply>, Refused>;

#[expect(clippy::unnecessary_wraps, reason = "it is how most request functions end")]
fn now(reply: impl Into<Reply>) -> Answer {
    Ok(Some(reply.into()))
}

impl Agent {
    /// A frame that the connection's rules let through.
    pub(super) fn handle(&mut self, serial: u64, frame: HostFrame) {
        match frame {
            HostFrame::Hello(hello) => self.answer_hello(serial, &hello),
            HostFrame::Request { id, request } => self.answer(serial, id, request),
            HostFrame::UnknownRequest { id, kind } => {
                self.refuse(
                    serial,
                    id,
                    Refused::new(RefusalCode::Unsupported, format!("request {kind:#04x}")),
                );
            }
            // The rules have counted it; the next turn of the loop sends what it pays for.
            HostFrame::Credit { .. } => {}
            HostFrame::Detach { id } => {
                let command = self.connections.get_mut(&serial).and_then(|connection| connection.detach(id));
                if let Some(command) = command {
                    super::unsubscribe(&mut self.commands, command);
                }
            }
            HostFrame::NoticeTaken => self.notice_taken(),
        }
    }

    fn answer_hello(&mut self, serial: u64, theirs: &Hello) {
        let ours = Hello {
            protocol_min: PROTOCOL_MIN,
            protocol_max: PROTOCOL_MAX,
            role: Role::Guest.into(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            features: feature::TERMINAL,
            generation: self.generation,
            root_error: self.setup.root_error.clone(),
        };
        let notice = self.notice();
        let Some(connection) = self.connections.get_mut(&serial) else { return };
        if theirs.protocol_min > PROTOCOL_MAX || theirs.protocol_max < PROTOCOL_MIN {
            let why = format!("this agent speaks protocol {PROTOCOL_MIN} to {PROTOCOL_MAX}");
            return connection.fail(RefusalCode::Version, &why);
        }
        connection.queue(&space_guest_proto::GuestFrame::Hello(ours));
        connection.rules.hello_sent();
        // A host that connects while the guest goes down hears of it all the same.
        if let Some(kind) = notice {
            connection.notify(kind);
        }
    }

    fn answer(&mut self, serial: u64, id: u32, request: Request) {
        let answer = match request {
            Request::Personalise(request) => self.personalise(request),
            Request::Health(_) => now(self.health()),
            Request::SetClock(request) => self.set_clock(&request),
            Request::AddEntropy(request) => self.add_entropy(&request),
            Request::Shutdown(_) => {
                // The answer comes before the notice.
                if let Some(connection) = self.connections.get_mut(&serial) {
                    connection.reply(id, ShutdownReply {});
                }
                self.go_down(NoticeKind::PowerOff);
                Ok(None)
            }
            Request::CreateCommand(request) => self.create_command(request),
            Request::AttachCommand(request) => self.attach_command(serial, id, request),
            Request::WriteStdin(request) => self.write_stdin(serial, id, request),
            Request::SignalCommand(request) => self.signal_command(&request),
            Request::GetCommand(request) => self.get_command(&request.command_id),
            Request::ListCommands(request) => self.list_commands(&request),
            Request::ResizeTerminal(request) => self.resize_terminal(&request),
        };
        match answer {
            Ok(Some(reply)) => {
                if let Some(connection) = self.connections.get_mut(&serial) {
                    connection.reply(id, reply);
                }
            }
            Ok(None) => {}
            Err(refused) => self.refuse(serial, id, refused),
        }
    }

    pub(super) fn refuse(&mut self, serial: u64, id: u32, refused: Refused) {
        if let Some(connection) = self.connections.get_mut(&serial) {
            connection.refuse(id, refused.code, refused.message);
        }
    }

    fn personalise(&mut self, request: PersonaliseRequest) -> Answer {
        validate::personalise(&request)?;
        if request.generation < self.generation {
            return Err(Refused::new(RefusalCode::StaleGeneration, self.generation.to_string()));
        }
        let mut reply = PersonaliseReply::default();
        // Entropy first: nothing that runs afterwards may draw from the old pool.
        if !request.entropy.is_empty() {
            reply.entropy_added = self.feed_entropy(&request.entropy)?;
        }
        if request.wall_clock_ns != 0 {
            reply.clock_skew_ns = clock::skew_ns(request.wall_clock_ns);
            reply.clock_set = self.move_clock(request.wall_clock_ns)?;
        }
        if self.setup.is_init && !request.hostname.is_empty() {
            sethostname(request.hostname.as_bytes()).map_err(internal)?;
        }
        self.env = request.env;
        self.generation = request.generation;
        now(reply)
    }

    /// False on a developer's machine, whose pool and clock are left alone.
    fn feed_entropy(&self, entropy: &[u8]) -> Result<bool, Refused> {
        if self.setup.is_init {
            crate::sys::entropy::add(entropy).map_err(internal)?;
        }
        Ok(self.setup.is_init)
    }

    fn move_clock(&self, wall_clock_ns: u64) -> Result<bool, Refused> {
        if self.setup.is_init {
            clock::set_wall(wall_clock_ns).map_err(internal)?;
        }
        Ok(self.setup.is_init)
    }

    fn set_clock(&mut self, request: &SetClockRequest) -> Answer {
        if request.wall_clock_ns == 0 {
            return Err(InvalidRequest::Missing { field: "wall_clock_ns" }.into());
        }
        let clock_skew_ns = clock::skew_ns(request.wall_clock_ns);
        self.move_clock(request.wall_clock_ns)?;
        now(SetClockReply { clock_skew_ns })
    }

    fn add_entropy(&mut self, request: &AddEntropyRequest) -> Answer {
        validate::entropy(&request.entropy, true)?;
        self.feed_entropy(&request.entropy)?;
        now(AddEntropyReply {})
    }

    fn health(&self) -> HealthReply {
        let memory = memory::read();
        let running =
            self.commands.iter().filter(|command| command.process.is_some() && command.exit.is_none());
        HealthReply {
            generation: self.generation,
            root_error: self.setup.root_error.clone(),
            uptime_ms: clock::uptime_ms(),
            wall_clock_ns: clock::wall_ns(),
            commands_running: u32::try_from(running.count()).unwrap_or(u32::MAX),
            commands_total: u32::try_from(self.commands.len()).unwrap_or(u32::MAX),
            agent_memory_bytes: memory.own,
            memory_total_bytes: memory.total,
            memory_available_bytes: memory.available,
            warnings: self.setup.warnings.clone(),
        }
    }

    /// Whether a command may be made or started now.
    fn admit_commands(&self) -> Result<(), Refused> {
        if self.going_down.is_some() {
            return Err(RefusalCode::ShuttingDown.into());
        }
        if !self.setup.root_error.is_empty() {
            return Err(Refused::new(RefusalCode::NoRoot, self.setup.root_error.clone()));
        }
        if self.generation == 0 { Err(RefusalCode::NotPersonalised.into()) } else { Ok(()) }
    }

    fn make_command(
        &mut self,
        id: &str,
        spec: space_guest_proto::message::CommandSpec,
    ) -> Result<u64, Refused> {
        self.admit_commands()?;
        validate::command_id(id)?;
        validate::spec(&spec)?;
        match self.commands.create(id, spec) {
            Created::Made(serial) | Created::Existed(serial) => Ok(serial),
            Created::Refused(code) => Err(code.into()),
        }
    }

    fn create_command(&mut self, request: CreateCommandRequest) -> Answer {
        let spec = request.spec.ok_or(InvalidRequest::Missing { field: "spec" })?;
        let serial = self.make_command(&request.command_id, spec)?;
        let command = self.commands.get(serial).map(|command| command.to_message(false));
        now(CreateCommandReply { command })
    }

    fn attach_command(&mut self, connection: u64, id: u32, request: AttachCommandRequest) -> Answer {
        let serial = match request.create {
            Some(spec) => self.make_command(&request.command_id, spec)?,
            None => self.commands.find(&request.command_id)?,
        };
        let command = self.commands.get(serial).ok_or(RefusalCode::NotFound)?;
        if request.after_sequence > command.ring.last_sequence() {
            return Err(InvalidRequest::TooLarge {
                field: "after_sequence",
                limit: command.ring.last_sequence(),
            }
            .into());
        }
        let unstarted = command.process.is_none() && command.exit.is_none();
        if unstarted {
            self.admit_commands()?;
            self.start(serial);
        }
        let command = self.commands.get_mut(serial).ok_or(RefusalCode::NotFound)?;
        command.subscribers += 1;
        let reply = AttachCommandReply { command: Some(command.to_message(false)) }.into();
        if let Some(connection) = self.connections.get_mut(&connection) {
            connection.subscribe(id, command, request.after_sequence, &reply, unstarted);
        }
        Ok(None)
    }

    fn write_stdin(&mut self, connection: u64, id: u32, request: WriteStdinRequest) -> Answer {
        validate::write_stdin(&request)?;
        let serial = self.commands.find(&request.command_id)?;
        self.feed_stdin(serial, Writer { connection, request: id }, request)?;
        Ok(None)
    }

    fn signal_command(&mut self, request: &SignalCommandRequest) -> Answer {
        validate::signal(request.signal)?;
        let serial = self.commands.find(&request.command_id)?;
        let command = self.commands.get(serial).ok_or(RefusalCode::NotFound)?;
        let process = command.process.as_ref().filter(|_| command.exit.is_none());
        let process = process.ok_or(RefusalCode::NotRunning)?;
        match process.signal(request.signal) {
            Ok(()) => now(SignalCommandReply {}),
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Err(RefusalCode::NotRunning.into()),
            Err(error) => Err(internal(error)),
        }
    }

    fn resize_terminal(&mut self, request: &ResizeTerminalRequest) -> Answer {
        let size = validate::resize_terminal(request)?;
        let serial = self.commands.find(&request.command_id)?;
        self.resize(serial, size)?;
        now(ResizeTerminalReply {})
    }

    fn get_command(&self, id: &str) -> Answer {
        let serial = self.commands.find(id)?;
        now(GetCommandReply { command: self.commands.get(serial).map(|command| command.to_message(true)) })
    }

    /// As many as one frame takes, at least one.
    fn list_commands(&self, request: &ListCommandsRequest) -> Answer {
        let after = match request.after_command_id.as_str() {
            "" => 0,
            id => self.commands.find(id)?,
        };
        let mut reply = ListCommandsReply::default();
        let mut room = limits::PAYLOAD_BYTES - 16;
        for command in self.commands.after(after) {
            let encoded = command.to_message(true).encode_to_vec();
            // A tag and a length of at most three bytes come with each.
            let cost = encoded.len() + 4;
            if cost > room || reply.encoded_commands.len() == limits::LIST_COMMANDS {
                reply.more = true;
                break;
            }
            room -= cost;
            reply.encoded_commands.push(encoded.into());
        }
        now(reply)
    }
}

fn internal(error: impl std::fmt::Display) -> Refused {
    Refused::new(RefusalCode::Internal, error.to_string())
}
