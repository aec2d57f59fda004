"""Tenants kept apart: who they are, what their jobs see, and what is refused before anything is started."""

from __future__ import annotations

import json
import os
import pwd
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from local_world import LocalWorld, pid_of

from cotenant.backends.channels import ChannelPart, ChannelSpec
from cotenant.backends.local.isolation import levels
from cotenant.backends.local.isolation.levels import FIRST_UID, Isolation, why_not
from cotenant.backends.local.isolation.tenants import Tenants
from cotenant.backends.local.isolation.users import Users, read_user_map
from cotenant.backends.local.machine import Machine
from cotenant.core.errors import InputError
from cotenant.testing.apart import open_folder, reachable_python
from cotenant.testing.backend_kit import PATIENCE_S, printed

needs_root = pytest.mark.skipif(os.geteuid() != 0 and "CI" not in os.environ, reason="only root can have other users")
MACHINE = Machine.find("local", None, ["gpu"] * 2)
PYTHON = reachable_python()


@pytest.fixture
def folder() -> Iterator[Path]:
    with open_folder() as found:
        yield found


@pytest.fixture
def make(tmp_path: Path, folder: Path) -> Iterator[Any]:
    """Worlds of a level; afterwards nothing of them may be left."""
    made: list[LocalWorld] = []

    def world(level: levels.Level, cgroups: bool = True, **more: Any) -> LocalWorld:
        choice = Isolation(level, folder=str(folder / "tenants"), **more)
        made.append(LocalWorld(tmp_path, cgroups=cgroups, isolation=choice))
        return made[-1]

    yield world
    for one in made:
        one.end_all()
        one.backend.close()
        one.assert_nothing_left()


def said(world: LocalWorld, script: str, **more: Any) -> tuple[int | None, str]:
    """Exit code of a job, and what it printed or why it could not be started."""
    world.launch("1-1", script, **more)
    end = world.until("1-1", "exited")
    text = world.log("1-1").strip() or world.log("1-1", "stderr").strip() or end.message
    world.backend.forget("1-1")
    return end.exit_code, text


def test_numbers_of_tenants_stay(tmp_path: Path) -> None:
    path = tmp_path / "tenants.json"
    first = [Users(path, FIRST_UID).of(name).uid for name in ("b", "a", "b")]
    assert len(set(first)) == 2
    again = Users(path, FIRST_UID)
    assert [again.of(name).uid for name in ("a", "b")] == [first[1], first[0]]
    assert again.of("c").uid == max(first) + 1
    assert json.loads(path.read_text()).keys() == {"a", "b", "c"}
    path.write_text('{"a": 2')
    with pytest.raises(InputError, match="does not say which tenant is which user"):
        Users(path, FIRST_UID)


def test_a_tenant_is_the_user_that_the_map_names(tmp_path: Path) -> None:
    path = tmp_path / "map"
    path.write_text("# who is who\nvision nobody  # for now\n\n")
    who, nobody = Users(tmp_path / "tenants.json", FIRST_UID, str(path)).of("vision"), pwd.getpwnam("nobody")
    assert (who.uid, who.gid, who.home) == (nobody.pw_uid, nobody.pw_gid, nobody.pw_dir)
    assert not (tmp_path / "tenants.json").exists()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("vision", "line 1: write a tenant and a user"),
        ("\nvision no-such-user", "line 2: there is no user 'no-such-user'"),
        ("vision root", "line 1: 'root' is root"),
        ("vision nobody\nvision daemon", "line 2: tenant 'vision' is named twice"),
        ("vision nobody\nspeech nobody", "line 2: 'nobody' is another tenant already"),
    ],
)
def test_a_bad_map_is_refused_by_line(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "map"
    path.write_text(text)
    with pytest.raises(InputError, match=f"--user-map {path}, {complaint}"):
        read_user_map(path)


def test_without_root_it_says_why_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert why_not("none") == ""
    assert "run the service as root" in why_not("user") == why_not("sandbox")
    with pytest.raises(InputError, match="--isolation user is not possible here: only root"):
        Isolation("user").check()
    assert "jobs run as uid 1000" in levels.unprotected(Isolation())[0]
    assert "network" in levels.unprotected(Isolation("sandbox"))[0]
    assert levels.unprotected(Isolation("sandbox", "none")) == ()


def test_a_container_without_capabilities_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(levels, "text_of", lambda path: "CapEff:\t0000000000000043\n")
    assert why_not("user") == "root lacks CAP_KILL, CAP_SETUID in this container"


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        ({"level": "users"}, "--isolation .*users.*user"),
        ({"level": "sandbox", "network": "lo"}, "--network .*lo"),
        ({"network": "none"}, "add --isolation sandbox"),
        ({"user_map": "x"}, "only with --isolation user or sandbox"),
        ({"pids": 1}, "pids from 8 up"),
    ],
)
def test_bad_choices_are_refused(more: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        Isolation.parse(**{"level": "none", "network": "host", **more})


@needs_root
def test_doors_are_checked_before_anything_starts(tmp_path: Path, folder: Path) -> None:
    home, files = tmp_path / "home", str(folder / "tenants")
    home.mkdir()

    def open_with(home: Path, machine: Machine = MACHINE, **more: Any) -> None:
        Tenants(Isolation(**{"level": "user", "folder": files, **more}), home, "label", machine)

    open_with(home)  # closed above
    (folder / "home").mkdir()
    with pytest.raises(InputError, match=r"others can enter .*: chmod 700"):
        open_with(folder / "home")
    with pytest.raises(InputError, match=r"tenants cannot reach .*: name another folder"):
        open_with(home, folder=str(tmp_path / "tenants"))
    with pytest.raises(InputError, match=f"expose={home.parent} would show {home}"):
        open_with(home, level="sandbox", expose=(str(home.parent),))
    with pytest.raises(InputError, match="one MPS server serves one user"):
        open_with(home, Machine("virtual", MACHINE.nodes, MACHINE.slots, "mps"))


@needs_root
def test_first_jobs_of_a_tenant_may_start_at_once(make: Any) -> None:
    """They took each other's half-made folder away."""
    world = make("user")
    keys = [f"{number}-1" for number in range(6)]
    with ThreadPoolExecutor(len(keys)) as pool:
        list(pool.map(lambda key: world.launch(key, "true", workdir="", tenant="new"), keys))
    assert [world.until(key, "exited").exit_code for key in keys] == [0] * len(keys)


@needs_root
def test_the_socket_leads_to_whoever_serves_now(tmp_path: Path, folder: Path) -> None:
    """Jobs outlive the service; the next one makes a new socket, and the name that they know must lead there."""
    world = LocalWorld(tmp_path, cgroups=False, isolation=Isolation("user", folder=str(folder / "tenants")))
    world.launch("1-1", "true")
    place = world.backend.listen_at()[0].removeprefix("unix:")
    (theirs,) = (folder / "tenants" / "run").glob("[!.]*")
    for number in range(2):
        with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as caller:
            Path(place).unlink(missing_ok=True)
            server.bind(place)
            server.listen()
            world.backend.observe()
            caller.connect(str(theirs / "runtime.sock"))
            server.accept()[0].close()
            assert sorted(os.listdir(theirs)) == ["runtime.sock", "turns"], number
    assert (theirs.stat().st_uid, theirs.stat().st_gid, theirs.stat().st_mode & 0o777) == (0, FIRST_UID, 0o550)
    world.end_all()
    world.backend.close()


@needs_root
@pytest.mark.parametrize("level", ["user", "sandbox"])
def test_jobs_of_a_tenant_find_one_folder_to_take_turns_in_and_others_do_not(
    make: Any, folder: Path, level: str
) -> None:
    world = make(level)
    turns = folder / "tenants" / "run" / str(FIRST_UID) / "turns"
    assert said(world, f"echo first > {turns}/gpu", tenant="vision", workdir="")[0] == 0
    assert said(world, f"cat {turns}/gpu", tenant="vision", workdir="") == (0, "first")
    assert said(world, f"ls {turns}", tenant="speech", workdir="")[0] != 0


@needs_root
def test_a_job_is_its_tenants(make: Any, folder: Path) -> None:
    world = make("user")
    script = 'echo $(id -u) $(id -G) $HOME $USER; test -w "$COTENANT_GPU_FILES"; grep NoNewPrivs /proc/self/status'
    code, text = said(world, script, tenant="vision", gpus=(("local", (2,)),), workdir="")
    home = folder / "tenants" / "homes" / "vision"
    group = FIRST_UID - 1000 + 2
    assert (code, text) == (0, f"{FIRST_UID} {FIRST_UID} {group} {home} vision\nNoNewPrivs:\t1")
    assert home.stat().st_mode & 0o777 == 0o700
    code, text = said(world, "true", workdir=str(world.work))
    assert (code, text) == (126, f"{world.work}: Permission denied"), "temporary folders of root are closed to others"


@needs_root
def test_a_sandbox_shows_folders_as_they_may_be_used(make: Any, folder: Path) -> None:
    """The tenant's own can be written, others that he can reach be read; the kernel's are not to be had by asking."""
    world = make("sandbox")
    own, others, closed = (folder / name for name in ("own", "others", "closed"))
    real = {path: str(path).removeprefix("/var") for path in (own, others)}  # /var/tmp is /tmp in a sandbox
    for path, mode in ((own, 0o755), (others, 0o755), (closed, 0o700)):
        path.mkdir()
        path.chmod(mode)
    os.chown(own, FIRST_UID, FIRST_UID)
    script = "echo $PWD; touch here 2>/dev/null; echo $?; ls .. | grep -c closed"
    assert said(world, script, workdir=str(own))[1].split() == [real[own], "0", "0"]
    assert said(world, script, workdir=str(others))[1].split() == [real[others], "1", "0"]
    assert said(world, script, workdir="/tmp")[1].split()[:2] == ["/tmp", "0"]
    assert said(world, script, workdir=str(closed)) == (126, f"{closed}: Permission denied")
    assert said(world, script, workdir="/proc/sys") == (126, "/proc/sys: a sandbox has its own")
    wish = {"COTENANT_CHECKPOINT_DIR": str(own / "a" / "b")}
    assert said(world, 'touch "$COTENANT_CHECKPOINT_DIR/kept"; echo $?', workdir="", env=wish) == (0, "0")
    assert (own / "a" / "b" / "kept").stat().st_uid == FIRST_UID
    wish = {"COTENANT_CHECKPOINT_DIR": "/etc/checkpoints"}
    assert said(world, "true", workdir="", env=wish)[0] == 126
    assert not Path("/etc/checkpoints").exists()


@needs_root
@pytest.mark.parametrize(("network", "seen"), [("none", "DOWN"), ("loopback", "UNKNOWN")])
def test_a_sandbox_has_the_network_that_was_chosen(make: Any, network: str, seen: str) -> None:
    world = make("sandbox", network=network)
    code, text = said(world, "ls /sys/class/net /proc/sys/net/ipv4/conf; cat /proc/net/dev | grep -c :", workdir="")
    assert code == 0
    assert text.splitlines()[-1] == "1", "lo, and nothing else"
    connect = "import socket; s=socket.create_server(('127.0.0.1',0)); socket.create_connection(s.getsockname())"
    assert (said(world, f'{sys.executable} -c "{connect}"', workdir="")[0] == 0) == (network == "loopback")


@needs_root
def test_another_program_joins_a_job_in_its_sandbox(make: Any) -> None:
    """It sees what the job sees, is the job's user, hears signals and ends in the same way."""
    world = make("sandbox")
    world.launch("1-1", "touch /tmp/here; sleep infinity", workdir="", tenant="vision")
    entries = "".join(f"{entry}\0" for entry in ("sandbox=1", f"uid={FIRST_UID}", f"gid={FIRST_UID}"))
    join = (
        f"import sys,os; sys.path += {list(levels.boot_path())}; import keeper, confine; os.setsid()\n"
        f"confine.join(keeper.KeptJob({entries.encode()!r}), {pid_of(world.until('1-1', 'running'))})\n"
        "keeper.signal.pthread_sigmask(keeper.signal.SIG_SETMASK, ())\n"
        "os.execvp('bash', ['bash', '-c', sys.argv[1]])"
    )
    script = "until test -e /tmp/here; do sleep 0.01; done; id -u; ps -e | wc -l; exit 5"
    words = [sys.executable, "-I", "-S", "-c", join]
    ran = subprocess.run([*words, script], capture_output=True, text=True, timeout=30, check=False)
    assert (ran.returncode, ran.stderr) == (5, "")
    assert ran.stdout.split()[0] == str(FIRST_UID)
    assert int(ran.stdout.split()[1]) < 10
    with subprocess.Popen([*words, "echo there; exec sleep infinity"], stdout=subprocess.PIPE) as beside:
        assert beside.stdout is not None
        assert beside.stdout.readline() == b"there\n"
        os.killpg(beside.pid, signal.SIGTERM)
        assert beside.wait(30) == -signal.SIGTERM
    assert world.backend.kill("1-1")


@needs_root
def test_without_groups_processes_are_bounded_too(make: Any) -> None:
    world = make("sandbox", cgroups=False, pids=24)
    fork = "import os, signal\nfor count in range(40):\n  if os.fork() == 0: signal.pause()\nprint('all of them')"
    code, text = said(world, f'{sys.executable} -c "$FORK"', workdir="", env={"FORK": fork})
    assert code == 1
    assert "BlockingIOError" in text


@needs_root
def test_checkpoints_come_along_when_tenants_are_kept_apart_from_now_on(make: Any) -> None:
    world = make("sandbox")
    before = world.home / "checkpoints" / "1"
    before.mkdir(parents=True)
    (before / "kept").write_text("from before")
    place = world.backend.checkpoint_dir("1")
    env = {"COTENANT_CHECKPOINT_DIR": place}
    code, text = said(world, 'cd "$COTENANT_CHECKPOINT_DIR"; cat kept; echo more >> kept', workdir="", job="1", env=env)
    assert (code, text) == (0, "from before")
    assert not before.exists()
    world.backend.drop_checkpoints("1")
    assert not Path(place).exists()


@needs_root
@pytest.mark.slow
def test_the_table_in_the_threat_model_is_what_a_hostile_job_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    """And every level keeps what it promises."""
    root = Path(__file__).resolve().parents[2]
    monkeypatch.syspath_prepend(str(root))
    from bench.isolation import COLUMNS, attack, broken_promises, table

    found = {column: attack(column) for column in COLUMNS}
    assert {column: broken_promises(column, found[column]) for column in COLUMNS} == {column: [] for column in COLUMNS}
    lines = (root / "docs" / "threat-model.md").read_text(encoding="utf-8").splitlines()
    assert [line for line in table(found) if line not in lines] == []


def told(channel: Any) -> tuple[bytes, ChannelPart]:
    """All that came through a channel, and its end."""
    data, deadline = b"", time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        part = channel.read(1.0)
        if part is not None and part.kind == "end":
            channel.close()
            return data, part
        data += part.data if part is not None else b""
    raise AssertionError(f"no end after {data!r}")


@needs_root
@pytest.mark.parametrize("level", ["user", "sandbox"])
def test_ways_into_a_job_lead_into_its_sandbox(make: Any, level: levels.Level) -> None:
    """A program beside it, with a terminal and without, its own terminal, and a port of a network of its own."""
    world = make(level, network="loopback" if level == "sandbox" else "host")
    serve = "import socket; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True); "
    serve += "c = s.accept()[0]; c.sendall(b'from inside'); c.close(); import time; time.sleep(600)"
    world.launch("1-1", 'mark=here exec "$PYTHON" -c "$SERVE"', workdir="", env={"PYTHON": PYTHON, "SERVE": serve})
    port = printed(world.backend, world.backend.open_log("1-1", "stdout"), lambda data: data.endswith(b"\n"))
    look = ("sh", "-c", "id -u; tty; ls /proc/self/fd | wc -l; cat; ls /proc | grep -c '^[0-9]'")
    for tty in (False, True):
        channel = world.backend.open_channel("1-1", ChannelSpec("exec", look, tty=tty))
        channel.write(b"said\n" + b"\x04" * tty, 5.0)
        channel.end_input()
        data, end = told(channel)
        assert end.exit_code == 0, data
        words = data.decode().replace("\r", "").split("\n")
        assert words[0] in (str(FIRST_UID), f"said{FIRST_UID}", "said"), "a terminal says again what is typed"
        assert str(FIRST_UID) in words
        assert (int(words[-2]) < 20) == (level == "sandbox")
    data, end = told(world.backend.open_channel("1-1", ChannelSpec("port", port=int(port))))
    assert data == b"from inside"
    world.launch("2-1", "read -r line; echo heard $line; exit 4", workdir="", tty=True)
    channel = world.backend.open_channel("2-1", ChannelSpec("attach"))
    channel.write(b"hello\n", 5.0)
    data, end = told(channel)
    assert b"heard hello" in data
    assert world.until("2-1", "exited").exit_code == 4
    assert world.backend.kill("1-1")
