//! Compiles `proto/*.proto` with a pure-Rust compiler, so that nobody has to install `protoc`.

fn main() -> anyhow::Result<()> {
    let files = [
        "common.proto",
        "registry.proto",
        "edge.proto",
        "node.proto",
        "commands.proto",
        "attach.proto",
        "files.proto",
        "ports.proto",
        "worker.proto",
    ];
    let root = "../../proto";
    println!("cargo:rerun-if-changed={root}");
    let descriptors = protox::compile(files, [root])?;
    tonic_prost_build::configure().include_file("protocols.rs").compile_fds(descriptors)?;
    Ok(())
}
