//! The binary: hands the command line to the library and returns its exit code.

use std::process::ExitCode;

/// Most of what a launch allocates lives as long as the launch.
#[global_allocator]
static HEAP: cowork_linux::Heap = cowork_linux::Heap::new();

fn main() -> ExitCode {
    cowork_linux::cli::main(std::env::args_os().collect())
}
