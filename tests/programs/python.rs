//! Python: virtual environments, pip without an index, pytest.

use crate::shop::has;
use crate::support::World;

/// Makes a wheel, which is nothing but a zip with these files, and no index to get it from.
const MAKE_WHEEL: &str = r#"
import zipfile
info = "greeting-1.0.dist-info/"
files = {
    "greeting.py": "def main():\n    print('hello from a wheel')\n",
    info + "METADATA": "Metadata-Version: 2.1\nName: greeting\nVersion: 1.0\n",
    info + "WHEEL": "Wheel-Version: 1.0\nGenerator: hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    info + "entry_points.txt": "[console_scripts]\ngreet = greeting:main\n",
}
files[info + "RECORD"] = "".join(name + ",,\n" for name in files)
with zipfile.ZipFile("greeting-1.0-py3-none-any.whl", "w") as wheel:
    for name, content in files.items():
        wheel.writestr(name, content)
"#;

#[test]
fn a_virtual_environment_takes_a_wheel() {
    if !has("python", &["python3"]) {
        return;
    }
    let world = World::new();
    world.write("w/make_wheel.py", MAKE_WHEEL);
    world
        .script(
            &[],
            "python3 make_wheel.py
             python3 -m venv env
             . env/bin/activate
             pip --disable-pip-version-check install -q --no-index ./greeting-1.0-py3-none-any.whl
             greet",
        )
        .ok()
        .says("hello from a wheel");
    // The next run finds it again, under another session's path or not.
    world
        .run(
            &[],
            &["env/bin/python", "-c", "import greeting; greeting.main()"],
        )
        .ok()
        .says("hello from a wheel");
}

#[test]
fn pytest_passes_and_fails_as_it_should() {
    if !has("python", &["python3", "pytest-3"]) {
        return;
    }
    let world = World::new();
    world.write(
        "w/test_sum.py",
        "import multiprocessing, socket, tempfile, threading\n\
         def test_sum(tmp_path):\n    (tmp_path / 'x').write_text('y')\n    assert 1 + 1 == 2\n\
         def test_pool():\n\
         \x20   with multiprocessing.Pool(2) as pool:\n        assert pool.map(abs, [-1, -2]) == [1, 2]\n\
         def test_loopback():\n    server = socket.create_server(('127.0.0.1', 0))\n\
         \x20   socket.create_connection(server.getsockname()).close()\n",
    );
    let run = ["python3", "-m", "pytest", "-q"];
    world.run(&[], &run).ok().says("3 passed");
    world.write("w/test_wrong.py", "def test_wrong():\n    assert 1 == 2\n");
    world.run(&[], &run).failed_with(1).says("1 failed");
}
