//! The binary: hands the command line to the library and returns its exit code.

use std::process::ExitCode;

fn main() -> ExitCode {
    cowork_linux::cli::main(std::env::args_os().skip(1).collect())
}
