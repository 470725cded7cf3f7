"""A real PostgreSQL server for tests, in a folder of its own, reached by a socket only."""

from __future__ import annotations

import getpass
import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path

MISSING = "no PostgreSQL server: install the package postgresql to run these tests"


def binaries() -> Path | None:
    """Folder of initdb and pg_ctl; None: not installed."""
    found = shutil.which("initdb")
    if found is not None and shutil.which("pg_ctl") is not None:
        return Path(found).resolve().parent
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return versions[-1].parent if versions else None


def unprivileged() -> str | None:
    """PostgreSQL does not run as root; a user that it may run as instead."""
    if os.getuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name).pw_name
        except KeyError:
            continue
    return None


class PostgresServer:
    """Starts, stops and kills a server."""

    def __init__(self) -> None:
        self.bin = binaries()
        self.user = unprivileged()
        self.folder = Path(tempfile.mkdtemp(prefix="pg"))
        if self.user is not None:
            shutil.chown(self.folder, self.user)
        self.name = self.user or getpass.getuser()
        self._command("initdb", "-A", "trust", "-U", self.name, "-D", self.data, "--no-sync")
        self._databases = 0
        self.start()

    @property
    def data(self) -> str:
        """Folder of the data."""
        return str(self.folder / "data")

    def start(self) -> None:
        """Start the server, which may have crashed before."""
        options = f"-k {self.folder} -c listen_addresses='' -c max_connections=40 -c fsync=off"
        self._command("pg_ctl", "-D", self.data, "-w", "-o", options, "-l", self.log, "start")

    @property
    def log(self) -> str:
        """File of the server's messages."""
        return str(self.folder / "log")

    def stop(self, mode: str = "fast") -> None:
        """`immediate` is a crash: the server recovers from its own journal at the next start."""
        self._command("pg_ctl", "-D", self.data, "-w", "-m", mode, "stop")

    def url(self) -> str:
        """An empty database."""
        self._databases += 1
        name = f"campaign{self._databases}"
        import psycopg

        login = f"host={self.folder} user={self.name} dbname=postgres"
        with psycopg.connect(login, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return f"postgresql://{self.name}@/{name}?host={self.folder}"

    def remove(self) -> None:
        """Stop the server and remove its data."""
        self.stop("immediate")
        shutil.rmtree(self.folder, ignore_errors=True)

    def _command(self, program: str, *words: str) -> None:
        assert self.bin is not None
        done = subprocess.run(
            [str(self.bin / program), *words],
            user=self.user,
            cwd="/",
            stdout=subprocess.PIPE if program != "pg_ctl" else subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
            timeout=120,
        )
        assert done.returncode == 0, f"{program}: {done.stdout!r}"
