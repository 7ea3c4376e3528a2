#![expect(clippy::disallowed_methods, reason = "a build script reads its environment")]
//! Compiles the relay protocol with a pure-Rust compiler, so that no `protoc` is needed.

use prost::Message;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    // They are built in by a macro, which does not notice a new one.
    println!("cargo:rerun-if-changed=src/store/migrations");
    let descriptors = protox::compile(["proto/relay.proto"], ["proto"])?;
    let out = std::path::PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("relay_descriptor.bin"), descriptors.encode_to_vec())?;
    tonic_prost_build::configure().bytes(".").compile_fds(descriptors)?;
    Ok(())
}
