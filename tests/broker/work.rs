//! Everyday work that must not notice the guard.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use crate::ground::Ground;

pub(crate) fn run(ground: &mut Ground) {
    files(ground);
    links_and_paths(ground);
    programs(ground);
    git(ground);
}

fn files(g: &mut Ground) {
    g.works(
        "a file is made, appended to and read",
        "echo a > f; echo b >> f; [ \"$(cat f)\" = \"a\nb\" ]",
    );
    g.works(
        "the umask counts",
        "umask 077; echo x > private; mkdir privdir; umask 002; echo x > shared",
    );
    let mode = |g: &Ground, name: &str| fs::metadata(g.host.join(name)).unwrap().mode() & 0o7777;
    let modes = (mode(g, "private"), mode(g, "privdir"), mode(g, "shared"));
    g.check(
        "modes arrive on the host",
        modes == (0o600, 0o700, 0o664),
        &format!("{modes:?}"),
    );
    g.works(
        "directories come and go",
        "mkdir -p a/b/c; rmdir a/b/c; mkdir -p a/b/c/d; rm -rf a; [ ! -e a ]",
    );
    g.works(
        "files are moved, linked, copied",
        "echo 1 > m; mv m n; ln n o; ln -s n p; cp p q; cp -a p r; rm n o p q r",
    );
    g.works("attributes change", "touch -d 2001-01-01 t; chmod 755 t; [ -x t ]; [ \"$(stat -c %Y t)\" -lt 1000000000 ]; chmod 700 .; chmod 755 $W; touch .");
    g.works("touch -h and chmod through links", "ln -s t tl; touch -h -d 2002-01-01 tl; chmod 600 tl; [ \"$(stat -c %a t)\" = 600 ]; chown $(id -u) t; chown -h $(id -u) tl");
    g.works(
        "truncation",
        "printf 12345 > s; truncate -s 2 s; [ \"$(cat s)\" = 12 ]; : > s; [ ! -s s ]",
    );
    g.works(
        "a file that exists may be opened for reading with O_CREAT",
        "python3 -c 'import os; os.open(\"s\", os.O_RDONLY|os.O_CREAT, 0o600)'",
    );
    g.works(
        "pipes work both ways",
        "mkfifo pipe; (echo hi > pipe &); [ \"$(cat pipe)\" = hi ]; rm pipe",
    );
    g.works("devices and free folders are not the broker's", "echo x > /dev/null; echo y > $FREE/x; mv $FREE/x $FREE/z; rm $FREE/z; echo z > cover/x; [ -e cover/x ]");
    g.works(
        "moving between mounts is copied by mv",
        "echo x > x; mv x $FREE/x; mv $FREE/x x; mv x $TWO/x; mv $TWO/x x; rm x",
    );
    g.works(
        "what is written outside doors by link is carried on",
        "ln -s $W/viafree $FREE/l; echo x > $FREE/l; [ -e viafree ]; rm $FREE/l viafree",
    );
    g.works("/proc/self/fd and /dev/fd lead where they should", "exec 3>fdfile; echo a > /proc/self/fd/3; echo b > /dev/fd/3; exec 3>&-; exec 4<fdfile; chmod 640 /proc/self/fd/4; [ \"$(stat -c %a fdfile)\" = 640 ]");
    g.works(
        "stdout by name",
        "sh -c 'echo hi > /dev/stdout' > so; [ \"$(cat so)\" = hi ]",
    );
    g.works("extended attributes", "python3 -c '
import os
open(\"xa\",\"w\")
try:
    os.setxattr(\"xa\", \"user.a\", b\"1\")
except OSError as e:
    assert e.errno == 95, e
else:
    fd = os.open(\"xa\", os.O_RDONLY); os.setxattr(fd, \"user.b\", b\"2\"); os.removexattr(\"xa\", \"user.a\")
    assert os.listxattr(\"xa\") == [\"user.b\"]
'");
    g.works("directory descriptors", "python3 -c '
import os
os.mkdir(\"dd\"); d = os.open(\"dd\", os.O_RDONLY)
os.fchmod(d, 0o711); os.utime(d, (1,2)); os.chown(d, -1, -1)
f = os.open(\"x\", os.O_CREAT|os.O_EXCL|os.O_WRONLY, dir_fd=d); os.fchmod(f, 0o640); os.utime(f, (3,4)); os.ftruncate(f, 10)
os.rename(\"x\", \"y\", src_dir_fd=d, dst_dir_fd=d); os.link(\"y\", \"z\", src_dir_fd=d, dst_dir_fd=d); os.unlink(\"y\", dir_fd=d)
os.symlink(\"z\", \"s\", dir_fd=d); os.mkdir(\"sub\", dir_fd=d); os.rmdir(\"sub\", dir_fd=d)
s = os.stat(\"dd/z\"); assert (s.st_mode & 0o777, s.st_size) == (0o640, 10), s
assert os.stat(\"dd\").st_mode & 0o777 == 0o711
os.chdir(\"dd\"); open(\"rel\", \"w\").write(\"x\"); os.remove(\"rel\")
'");
    let owner = fs::metadata(g.host.join("f")).unwrap().uid();
    g.check(
        "files belong to the caller",
        owner == 1000,
        &owner.to_string(),
    );
}

fn links_and_paths(g: &mut Ground) {
    g.works("errors are the kernel's", "python3 -c '
import os, errno
def fails(e, f, *a, **k):
    try: f(*a, **k)
    except OSError as x: assert x.errno == e, (f, a, errno.errorcode[x.errno], errno.errorcode[e]); return
    assert False, (f, a)
W, C, X = os.O_WRONLY, os.O_CREAT, os.O_EXCL
open(\"ef\", \"w\"); os.mkdir(\"ed\"); os.symlink(\"ef\", \"el\"); os.symlink(\"eloop\", \"eloop\"); os.symlink(\"nowhere\", \"dangling\")
fails(errno.ENOENT, os.open, \"none\", W)
fails(errno.ENOENT, os.open, \"none/x\", W|C)
fails(errno.ENOTDIR, os.open, \"ef/x\", W|C)
fails(errno.EEXIST, os.open, \"ef\", W|C|X)
fails(errno.EEXIST, os.open, \"el\", W|C|X)
fails(errno.EISDIR, os.open, \"ed\", W)
fails(errno.EISDIR, os.open, \"new/\", W|C)
fails(errno.ELOOP, os.open, \"el\", W|os.O_NOFOLLOW)
fails(errno.ELOOP, os.open, \"eloop\", W)
fails(errno.ENOTDIR, os.open, \"ef/\", W)
fails(errno.EEXIST, os.mkdir, \"ed\"); fails(errno.EEXIST, os.mkdir, \"ed/\"); fails(errno.EEXIST, os.mkdir, \".\")
fails(errno.EEXIST, os.symlink, \"x\", \"ef\"); fails(errno.EEXIST, os.link, \"ef\", \"el\")
fails(errno.ENOTEMPTY, os.rename, \"ed\", \"dd\"); fails(errno.ENOTDIR, os.rename, \"ed\", \"ef\"); fails(errno.EISDIR, os.rename, \"ef\", \"ed\")
fails(errno.EINVAL, os.rename, \"ed\", \"ed/x\")
fails(errno.ENOTDIR, os.rmdir, \"ef\"); fails(errno.EISDIR, os.unlink, \"ed\"); fails(errno.ENOENT, os.unlink, \"none\")
fails(errno.EINVAL, os.rmdir, \".\"); fails(errno.ENOTDIR, os.unlink, \"ef/\")
fails(errno.ENAMETOOLONG, os.open, \"x\"*256, W|C); fails(errno.ENAMETOOLONG, os.mkdir, \"x/\"*2500)
fails(errno.EXDEV, os.rename, \"ef\", os.environ[\"FREE\"]+\"/x\"); fails(errno.EXDEV, os.link, \"ef\", os.environ[\"TWO\"]+\"/x\"); fails(errno.EXDEV, os.link, \"/etc/passwd\", \"pw\"); fails(errno.ENOENT, os.link, \"/etc/none\", \"pw\")
fails(errno.EBADF, os.open, \"x\", W|C, dir_fd=999)
fails(errno.EPERM, os.mknod, \"dev\", 0o20600, os.makedev(1,3))
fails(errno.EPERM, os.link, \"ed\", \"hard\")
fd = os.open(\"dangling\", W|C); os.close(fd); assert os.path.exists(\"nowhere\")
assert not os.access(\"none\", os.W_OK) and os.access(\"ef\", os.W_OK) and os.access(\".\", os.W_OK) and os.access(\"ed\", os.W_OK|os.X_OK)
assert not os.access(\"ef\", os.W_OK|os.X_OK) and os.access(os.environ[\"W\"], os.W_OK)
'");
    g.works("odd paths", "mkdir -p od/x; echo 1 > ./od//x/../y; echo 2 > $W/../w/od/z; cd od/x; echo 3 > ../../od/q; [ -e ../z ] && [ -e ../q ]; mkdir n///; rmdir ./n/");
    g.works(
        "names with line ends and bytes",
        "python3 -c '
import os
for n in (b\"a\\nb\", b\"\\xff\\xfe\", b\"x\"*255, b\" (deleted)\"):
    open(n, \"w\").write(\"1\"); os.rename(n, n[:200]+b\"2\"); os.unlink(n[:200]+b\"2\")
os.mkdir(\"g (deleted)\"); os.chdir(\"g (deleted)\"); open(\"in\", \"w\")
'",
    );
    g.works(
        "a removed working directory",
        "mkdir gone; cd gone; rmdir ../gone; ! echo x 2>/dev/null > y",
    );
    g.works(
        "nameless files get names",
        "python3 -c '
import os, ctypes
fd = os.open(\".\", os.O_TMPFILE|os.O_RDWR, 0o640); os.write(fd, b\"hello\")
libc = ctypes.CDLL(None, use_errno=True)
assert libc.linkat(-100, b\"/proc/self/fd/%d\" % fd, -100, b\"named\", 0x400) == 0, ctypes.get_errno()
assert open(\"named\").read() == \"hello\"
fd = os.open(os.environ[\"W\"], os.O_TMPFILE|os.O_RDWR, 0o640)
assert libc.linkat(fd, b\"\", -100, b\"named2\", 0x1000) == 0, ctypes.get_errno()
'",
    );
    g.works(
        "openat2 with limits",
        "python3 -c '
import ctypes, os, struct
libc = ctypes.CDLL(None, use_errno=True)
def o2(path, flags, mode, resolve):
    how = struct.pack(\"QQQ\", flags, mode, resolve)
    return libc.syscall(437, -100, path, how, 24)
assert o2(b\"o2\", os.O_CREAT|os.O_RDWR, 0o600, 8) >= 0, ctypes.get_errno()
assert o2(b\"o2\", os.O_RDONLY, 0, 0) >= 0
assert o2(b\"../x\", os.O_CREAT|os.O_RDWR, 0o600, 8) < 0 and ctypes.get_errno() == 18
os.symlink(\"o2\", \"o2l\"); assert o2(b\"o2l\", os.O_RDWR, 0, 4) < 0 and ctypes.get_errno() == 40
'",
    );
}

fn programs(g: &mut Ground) {
    g.works("tar and cp -a keep what they carry", "mkdir -p src/d; for i in 1 2 3 4 5 6 7 8 9; do echo $i > src/d/$i; done; chmod 555 src/d; ln -s d/1 src/l; tar cf s.tar src; mkdir out; tar xf s.tar -C out; cp -a src copy; diff -r src out/src; diff -r src copy; [ \"$(stat -c %a out/src/d)\" = 555 ]; chmod -R u+w src out copy; rm -rf src out copy s.tar");
    g.works("sqlite", "if command -v sqlite3; then sqlite3 db 'pragma journal_mode=wal; create table t(a); insert into t values(1); select * from t'; sqlite3 db 'pragma journal_mode=delete; insert into t values(2)'; [ \"$(sqlite3 db 'select count(*) from t')\" = 2 ]; fi");
    g.works("python's temporary files", "TMPDIR=$W python3 -c '
import tempfile, shutil, os
with tempfile.NamedTemporaryFile(\"w\") as f: f.write(\"x\")
with tempfile.TemporaryFile(dir=\".\") as f: f.write(b\"x\")
d = tempfile.mkdtemp(); open(d+\"/a\",\"w\"); shutil.copytree(d, d+\"2\"); shutil.rmtree(d); shutil.rmtree(d+\"2\")
'");
    g.works("sed -i, install, mktemp", "printf 'a\n' > sd; sed -i s/a/b/ sd; [ \"$(cat sd)\" = b ]; install -m 755 sd sd2; mktemp -p . > /dev/null");
    g.works(
        "a caller without free descriptors is told so",
        "python3 -c '
import os, resource, errno
resource.setrlimit(resource.RLIMIT_NOFILE, (8, 8))
try:
    for i in range(9): os.open(\"nofile%d\" % i, os.O_CREAT|os.O_WRONLY)
    assert False
except OSError as e: assert e.errno == errno.EMFILE, e
'; rm nofile*",
    );
    g.works("node", "if command -v node; then node -e 'const fs=require(\"fs\");fs.mkdirSync(\"nd/a/b\",{recursive:true});fs.writeFileSync(\"nd/a/b/c\",\"x\");fs.accessSync(\"nd\",fs.constants.W_OK);fs.cpSync(\"nd\",\"nd2\",{recursive:true});fs.rmSync(\"nd\",{recursive:true});fs.rmSync(\"nd2\",{recursive:true})'; fi");
    g.works("many processes at once", "for p in 1 2 3 4 5 6 7 8; do (i=0; while [ $i -lt 50 ]; do echo $i > par.$p.$i; mv par.$p.$i q.$p.$i; i=$((i+1)); done) & done; wait; [ \"$(ls q.* | wc -l)\" = 400 ]; rm q.*");
}

const WHO: &str = "git config user.name A; git config user.email a@b.c";

fn git(g: &mut Ground) {
    g.works("git init and commit", &format!("git init -q repo; cd repo; {WHO}; echo a > a; git add a; git commit -qm a; git checkout -qb b; echo b > a; git commit -qam b; git status --porcelain"));
    g.works("git rebase, merge, stash, gc, tag", "cd repo; git checkout -q -; echo c > c; git add c; git commit -qm c; git checkout -q b; git rebase -q -; git checkout -q -; git merge -q b; echo z > a; git stash -q; git stash pop -q; git checkout -q a; git tag t; git gc -q; git branch -f up; git branch -u b up; git branch -D up");
    g.works("git clone, push, pull, bare", "git init -q --bare bare.git; git clone -q repo clone; cd clone; git config user.name A; git config user.email a@b.c; git remote add bare ../bare.git; git push -q bare HEAD:main; git remote rename bare other; git pull -q other main; git fetch -q --all; git remote remove other");
    g.works("git worktree", "cd repo; git worktree add -q ../tree; cd ../tree; echo w > w; git add w; git commit -qm w; cd ../repo; git worktree remove ../tree");
    g.works("git submodule", "git init -q super; cd super; git config user.name A; git config user.email a@b.c; git -c protocol.file.allow=always submodule add -q $W/repo sub; git commit -qm s; git -c protocol.file.allow=always submodule update --init -q; cd ..; git -c protocol.file.allow=always clone -q --recurse-submodules super super2");
    g.works(
        "git sparse-checkout",
        "cd clone; git sparse-checkout set x; git sparse-checkout disable",
    );
    g.works(
        "a clone can be removed",
        "rm -rf clone super2; [ ! -e clone ]",
    );
    g.works("folders that only sound like git", "mkdir -p app/src/hooks app/config app/objects; echo x > app/src/hooks/use.ts; echo 'port: 1' > app/cfg; echo x > app/config/a; mkdir app/refs; echo x > app/HEAD");
    let leftovers = fs::read_dir(g.host.join("repo/.git")).unwrap();
    let left = leftovers
        .filter(|e| {
            e.as_ref()
                .unwrap()
                .file_name()
                .to_string_lossy()
                .contains("cowork")
        })
        .count();
    g.check("nothing of ours is left in .git", left == 0, "");
    let mode = fs::metadata(g.host.join("repo/.git/config"))
        .unwrap()
        .permissions()
        .mode();
    g.check(
        "git's configuration keeps its mode",
        mode & 0o777 == 0o644,
        &format!("{mode:o}"),
    );
}
