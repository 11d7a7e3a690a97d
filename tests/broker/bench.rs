//! What one brokered call costs.

use std::process::Command;

use crate::ground::Ground;

const PROGRAM: &str = r#"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1e6 + t.tv_nsec / 1e3; }
int main(int argc, char **argv) {
    int n = 20000; char name[64]; (void)argc;
    if (chdir(argv[1])) return 1;
    mkdir("bench", 0755);
    double a = now();
    for (int i = 0; i < n; i++) { sprintf(name, "bench/%d", i); int f = open(name, O_WRONLY|O_CREAT|O_TRUNC, 0644); if (f < 0) return 2; close(f); }
    double b = now();
    for (int i = 0; i < n; i++) { sprintf(name, "bench/%d", i); int f = open(name, O_WRONLY|O_TRUNC); if (f < 0) return 2; close(f); }
    double c = now();
    for (int i = 0; i < n; i++) { sprintf(name, "bench/%d", i); struct stat s; if (stat(name, &s)) return 2; }
    double d = now();
    for (int i = 0; i < n; i++) { int f = open("/dev/null", O_WRONLY); if (f < 0) return 2; close(f); }
    double e = now();
    for (int i = 0; i < n; i++) { sprintf(name, "bench/%d", i); if (unlink(name)) return 2; }
    double f = now();
    rmdir("bench");
    printf("%-8s create %5.1f  rewrite %5.1f  stat %4.1f  /dev/null %5.1f  unlink %5.1f  us\n", argv[2], (b-a)/n, (c-b)/n, (d-c)/n, (e-d)/n, (f-e)/n);
    return 0;
}
"#;

pub(crate) fn run(ground: &mut Ground) {
    let (source, binary) = (ground.path("bench.c"), ground.path("bench"));
    std::fs::write(&source, PROGRAM).unwrap();
    let built = Command::new("cc")
        .arg("-O2")
        .arg(&source)
        .arg("-o")
        .arg(&binary)
        .status()
        .unwrap();
    assert!(built.success());
    for _ in 0..3 {
        Command::new(&binary)
            .arg(ground.path("free"))
            .arg("plain")
            .status()
            .unwrap();
        let mut command = Command::new(&binary);
        command.arg(&ground.inside).arg("brokered");
        print!("{}", ground.run_command(command).text);
    }
}
