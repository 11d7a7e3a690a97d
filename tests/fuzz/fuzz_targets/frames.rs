#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    cowork_linux::service::fuzzing::frames(bytes);
});
