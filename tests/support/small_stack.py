"""A supervisor over a short service list: the real PostgreSQL and Valkey and tiny HTTP servers. Run as a program.

`python -m tests.support.small_stack DATA [--broken] [--stubborn]` prints one JSON line per notice.
"""

import argparse
import asyncio
import dataclasses
import json
import os
import sys
from pathlib import Path

from app.core.errors import FullreadError
from app.local import ports
from app.local.health import http_ok
from app.local.state import Home, Lock, open_home
from app.local.supervisor import Notice, Supervisor
from app.local.table import Plan, ServiceSpec, common_environment, plan
from app.settings import Settings

# It forks a child of its own, as a worker pool does: the child outlives a killed parent unless somebody ends it.
WEB = """
import http.server, os, signal, subprocess, sys
if "pool" in sys.argv:
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
if "stubborn" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(str(os.nice(0)).encode())
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Answer).serve_forever()
"""


def web(name: str, port: int, *words: str, depends_on: tuple[str, ...], nice: int = 0) -> ServiceSpec:
    """One tiny server."""
    return ServiceSpec(
        name,
        command=(sys.executable, "-c", WEB, str(port), *words),
        check=http_ok(port, "/"),
        depends_on=depends_on,
        url=f"http://127.0.0.1:{port}",
        port=port,
        nice=nice,
        stop_timeout_s=2.0,
    )


def small_plan(home: Home, *, broken: bool = False, stubborn: bool = False) -> Plan:
    """PostgreSQL and Valkey as the product has them, then `one`, then `two` (nice 19, with a child) and `three`."""
    # Their addresses given, the model servers need no models here.
    given = Settings(ENGINE_URL="http://127.0.0.1:1", EMBEDDINGS_URL="http://127.0.0.1:1")
    whole = plan(home, given, os.environ)
    servers = tuple(spec for spec in whole.services if spec.name in ("postgres", "valkey"))
    names = ("one", "two", "three")
    chosen = ports.choose(names, ports.remembered(home.ports_file), api_port=None)
    ports.remember(home.ports_file, chosen)
    two = web("two", chosen["two"], "pool", *(("stubborn",) if stubborn else ()), depends_on=("one",), nice=19)
    if broken:
        two = dataclasses.replace(two, command=(sys.executable, "-c", "raise SystemExit('no model here')"))
    services = (
        *servers,
        web("one", chosen["one"], depends_on=("postgres", "valkey")),
        two,
        web("three", chosen["three"], depends_on=("two",)),
    )
    return Plan(services, common_environment(home, os.environ), f"http://127.0.0.1:{chosen['three']}", chosen["three"])


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("--broken", action="store_true")
    parser.add_argument("--stubborn", action="store_true")
    options = parser.parse_args()

    def report(notice: Notice) -> None:
        print(json.dumps(dataclasses.asdict(notice)), flush=True)

    try:
        home = open_home(options.data)
        with Lock(home):
            chosen = small_plan(home, broken=options.broken, stubborn=options.stubborn)
            return asyncio.run(Supervisor(home, chosen, ready=None, report=report).run())
    except FullreadError as error:
        print(json.dumps({"kind": "refused", "service": "", "text": error.message, "facts": error.facts}), flush=True)
        return 1


if __name__ == "__main__":
    sys.exit(main())
