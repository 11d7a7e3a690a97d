"""Fills a folder with what the internet's servers and the host need: certificates, keys, repositories, packages.

    python3 prepare.py FOLDER
"""

import base64
import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import zipfile

NAMES = ["allowed.test", "denied.test", "evilallowed.test", "registry.test", "ssh.test", "db.test", "api.anthropic.com",
         "*.wild.test", "*.exfil.test", "*.names.test"]
RESOLVER = "93.184.216.53"
AUTHORITIES = "/etc/ssl/certs/ca-certificates.crt"


def run(*words, **more):
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, **more)


def write(path, content):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as out:
        out.write(content)


def certificates(folder):
    """An authority of this world alone, what it signed, and the list of all authorities the host trusts."""
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    at = lambda name: os.path.join(folder, name)
    run("openssl", "req", "-x509", *curve, "-keyout", at("authority.key"), "-out", at("authority.pem"), "-days", "30",
        "-subj", "/CN=The tests' own authority", "-addext", "keyUsage=critical,keyCertSign,cRLSign")
    run("openssl", "req", *curve, "-keyout", at("key.pem"), "-out", at("request.pem"), "-subj", "/CN=allowed.test")
    names = ",".join([f"DNS:{name}" for name in NAMES] + ["IP:93.184.216.34"])
    write(at("extensions"), f"subjectAltName={names}\nextendedKeyUsage=serverAuth\nbasicConstraints=CA:false\n")
    run("openssl", "x509", "-req", "-in", at("request.pem"), "-CA", at("authority.pem"), "-CAkey", at("authority.key"),
        "-CAcreateserial", "-days", "30", "-extfile", at("extensions"), "-out", at("cert.pem"))
    with open(AUTHORITIES) as known, open(at("authority.pem")) as ours:
        write(at("ca.pem"), known.read() + ours.read())


def repositories(folder):
    """One repository, for reading over HTTP and SSH, in the home of a user called git."""
    home, work = os.path.join(folder, "git"), os.path.join(folder, "work")
    surroundings = dict(os.environ, HOME=folder, GIT_CONFIG_NOSYSTEM="1")
    write(os.path.join(work, "README"), "a project of the internet\n")
    git = lambda *words, cwd=work: run("git", "-c", "user.name=T", "-c", "user.email=t@allowed.test", *words, cwd=cwd,
                                       env=surroundings)
    git("init", "-q", "-b", "main")
    git("add", ".")
    git("commit", "-q", "-m", "The beginning")
    os.makedirs(home, exist_ok=True)
    git("clone", "-q", "--bare", work, os.path.join(home, "project.git"))
    write(os.path.join(folder, "passwd"), f"git:x:{os.getuid()}:{os.getgid()}::{home}:/bin/sh\n")
    if os.path.exists("/usr/sbin/dropbear"):
        key = os.path.join(folder, "ssh_key")
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key)
        with open(key + ".pub") as public:
            write(os.path.join(home, ".ssh/authorized_keys"), public.read())
        os.chmod(home, 0o700)
        run("dropbearkey", "-t", "ed25519", "-f", os.path.join(folder, "ssh_host_key"))


def packages():
    """A package for npm and one for pip, with the pages that say where they are."""
    return {**npm(), **pip()}


def page(kind, content):
    return kind, (content if isinstance(content, bytes) else content.encode()).hex()


def npm():
    tarball = io.BytesIO()
    about = {"name": "tiny-thing", "version": "1.0.0", "main": "index.js"}
    with tarfile.open(fileobj=tarball, mode="w:gz") as packed:
        for name, text in [("package.json", json.dumps(about)), ("index.js", "module.exports = 'a tiny thing of npm'\n")]:
            entry = tarfile.TarInfo("package/" + name)
            entry.size = len(text)
            packed.addfile(entry, io.BytesIO(text.encode()))
    digest = base64.b64encode(hashlib.sha512(tarball.getvalue()).digest()).decode()
    place = "/npm/tiny-thing/-/tiny-thing-1.0.0.tgz"
    dist = {"tarball": "https://{host}" + place, "integrity": "sha512-" + digest}
    packument = {"name": "tiny-thing", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": dict(about, dist=dist)}}
    return {"/npm/tiny-thing": page("application/json", json.dumps(packument)),
            place: page("application/octet-stream", tarball.getvalue())}


def pip():
    files = {"tiny_thing.py": "WORD = 'a tiny thing of pip'\n",
             "tiny_thing-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: tiny-thing\nVersion: 1.0\n",
             "tiny_thing-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}
    files["tiny_thing-1.0.dist-info/RECORD"] = "".join(name + ",,\n" for name in files)
    wheel = io.BytesIO()
    with zipfile.ZipFile(wheel, "w") as packed:
        for name, text in files.items():
            packed.writestr(name, text)
    name = "tiny_thing-1.0-py3-none-any.whl"
    link = f'<a href="/wheels/{name}#sha256={hashlib.sha256(wheel.getvalue()).hexdigest()}">{name}</a>'
    return {"/simple/tiny-thing/": page("text/html", f"<!DOCTYPE html><html><body>{link}</body></html>"),
            "/wheels/" + name: page("application/octet-stream", wheel.getvalue())}


def main(folder):
    certificates(folder)
    repositories(folder)
    write(os.path.join(folder, "pages.json"), json.dumps(packages()))
    write(os.path.join(folder, "resolv.conf"), f"nameserver {RESOLVER}\noptions timeout:1 attempts:2\n")
    write(os.path.join(folder, "hosts"), "127.0.0.1 localhost\n::1 localhost ip6-localhost\n")


main(*sys.argv[1:])
