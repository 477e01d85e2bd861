"""Starts, watches, restarts and stops the local stack's processes, in one thread. Owns nothing that they serve."""

import asyncio
import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from app.core.errors import FullreadError, UnavailableError
from app.local import postgres, processes
from app.local.health import Check
from app.local.state import Home, Phase, ServiceState, StackState, identity
from app.local.table import Plan, ServiceSpec, shown_url

FIRST_DELAY_S = 0.2
LONGEST_DELAY_S = 5.0
STEADY_S = 10.0
READY_TIMEOUT_S = 180.0
_WATCH_S = 5.0
LEFTOVER_GRACE_S = 4.0

Kind = Literal["leftover", "external", "starting", "healthy", "crashed", "ready", "stopping", "stopped", "failed"]


@dataclass(frozen=True, slots=True)
class Notice:
    """One line for whoever watches: what happened to which service."""

    kind: Kind
    service: str
    text: str


Report = Callable[[Notice], None]


@dataclass(slots=True)
class _Service:
    spec: ServiceSpec
    process: subprocess.Popen[bytes] | None = None
    created: float | None = None
    state: str = "waiting"
    restarts: int = 0
    healthy: asyncio.Event = field(default_factory=asyncio.Event)
    exited: asyncio.Event = field(default_factory=asyncio.Event)


def restart_delay_s(crashes: int) -> float:
    """Seconds before the restart after the `crashes`-th crash in a row: 0.2, 0.4 ... 5."""
    return min(FIRST_DELAY_S * 2.0 ** (crashes - 1), LONGEST_DELAY_S)


class Supervisor:
    """Runs the services of one plan until it is told to stop. The caller holds the directory's lock."""

    def __init__(self, home: Home, chosen: Plan, *, ready: Check | None, report: Report) -> None:
        self._home = home
        self._plan = chosen
        self._ready = ready
        self._report = report
        self._stack_id = identity(home)
        self._before = StackState.read(home)
        self._services = {spec.name: _Service(spec) for spec in chosen.services}
        self._phase: Phase = "starting"
        self._failure = ""
        self._stop = asyncio.Event()
        self._hurry = False
        self._started_at = datetime.now(UTC)

    async def run(self) -> int:
        """Start everything, wait for a signal or a failed start, stop everything; the exit status."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._asked_to_stop)
        loop.add_signal_handler(signal.SIGCHLD, self._look_for_exits)
        self._save()
        tasks: list[asyncio.Task[None]] = []
        try:
            await self._clean_up()
            tasks = [asyncio.create_task(self._guarded(self._keep(s))) for s in self._services.values()]
            tasks.append(asyncio.create_task(self._guarded(self._become_ready())))
            await self._stop.wait()
        finally:
            self._phase = "stopping"
            self._save()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._shut_down()
        if self._failure:
            self._phase = "failed"
            self._save()
            return 1
        self._home.state_file.unlink(missing_ok=True)
        return 0

    # -- start and watch

    async def _guarded(self, work: Coroutine[object, object, None]) -> None:
        try:
            await work
        except FullreadError as error:
            self._fail(error.message)
        except OSError as error:
            self._fail(f"{type(error).__name__}: {error}")

    def _fail(self, reason: str) -> None:
        if not self._failure and not self._stop.is_set():
            self._failure = reason
            self._report(Notice("failed", "", reason))
        self._stop.set()

    async def _clean_up(self) -> None:
        """End what an earlier supervisor left behind: this directory's mark, or its recorded pid and start time."""
        server = postgres.running(self._home)
        if ended := await processes.end(server, first=signal.SIGINT, grace_s=LEFTOVER_GRACE_S):
            self._report(Notice("leftover", "postgres", f"ended a leftover server (pid {ended[0]})"))
        left = processes.marked(self._stack_id)
        for line in self._before.services if self._before else ():
            left += processes.recorded(line.pid, line.created)
        if ended := await processes.end(left, first=signal.SIGTERM, grace_s=LEFTOVER_GRACE_S):
            pids = ", ".join(map(str, ended))
            self._report(Notice("leftover", "", f"ended processes of an earlier start (pids {pids})"))

    async def _keep(self, service: _Service) -> None:
        """One service's life: wait for what it needs, start, check, and start again whenever it exits."""
        spec = service.spec
        for name in spec.depends_on:
            if name in self._services:
                await self._services[name].healthy.wait()
        if spec.external_url:
            self._set(service, "external")
            self._report(Notice("external", spec.name, f"given by {spec.url_env}"))
            service.healthy.set()
            return
        if spec.before_start is not None:
            await spec.before_start()
        processes.rotate(self._home.log_file(spec.name))
        crashes, first_crash_at = 0, 0.0
        while True:
            began = time.monotonic()
            self._start(service)
            healthy = await self._until_healthy(service)
            if spec.one_shot and healthy:
                return
            healthy_at = time.monotonic()
            if healthy:
                await self._watch(service)
            # From here it has exited.
            steady = healthy and time.monotonic() - healthy_at >= STEADY_S
            crashes = 1 if steady or crashes == 0 else crashes + 1
            first_crash_at = began if crashes == 1 else first_crash_at
            never_worked = not service.healthy.is_set()
            if never_worked and (spec.one_shot or time.monotonic() - first_crash_at > STEADY_S):
                raise self._start_failed(service, f"exited with {self._exit(service)}")
            delay_s = restart_delay_s(crashes)
            service.restarts += 1
            self._set(service, "restarting")
            self._report(
                Notice("crashed", spec.name, f"exited with {self._exit(service)}; starting it again in {delay_s:.1f} s")
            )
            # Its children (worker pools, parsers) must not go on beside their successors.
            await processes.end(processes.marked(self._stack_id, spec.name), first=signal.SIGKILL, grace_s=1.0)
            await asyncio.sleep(delay_s)

    def _start(self, service: _Service) -> None:
        spec = service.spec
        environment = {
            **self._plan.environment,
            **spec.environment,
            processes.STACK_VARIABLE: self._stack_id,
            processes.SERVICE_VARIABLE: spec.name,
        }
        service.exited.clear()
        try:
            service.process = processes.launch(
                spec.command,
                environment=environment,
                log_path=self._home.log_file(spec.name),
                cwd=Path("/") if spec.uid is not None else self._home.run,
                nice=spec.nice,
                uid=spec.uid,
                stdout_path=spec.stdout_path,
                death_signal=spec.stop_signal,
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise UnavailableError("start_failed", f"{spec.name} could not be started: {error}") from error
        service.created = processes.created(service.process.pid)
        self._set(service, "starting")
        if not service.restarts:
            self._report(Notice("starting", spec.name, f"pid {service.process.pid}"))
        self._look_for_exits()

    async def _until_healthy(self, service: _Service) -> bool:
        """True once its check passes; False when it exits first. Raises UnavailableError when it takes too long."""
        spec = service.spec
        began = time.monotonic()
        pause_s = 0.03
        while True:
            if spec.one_shot or spec.check is None:
                passed = not spec.one_shot
            else:
                passed = not service.exited.is_set() and await spec.check()
            if service.exited.is_set():
                passed = spec.one_shot and service.process is not None and service.process.returncode == 0
                if not passed:
                    return False
            if passed:
                if not service.healthy.is_set() and spec.after_healthy is not None:
                    await spec.after_healthy()
                self._set(service, "done" if spec.one_shot else "running")
                service.healthy.set()
                text = f"in {time.monotonic() - began:.1f} s" + (f" at {spec.url}" if spec.url else "")
                self._report(Notice("healthy", spec.name, text))
                return True
            if time.monotonic() - began > spec.start_timeout_s and not service.healthy.is_set():
                raise self._start_failed(service, f"did not answer within {spec.start_timeout_s:.0f} s")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(service.exited.wait(), pause_s)
            pause_s = min(pause_s * 1.5, 0.25)

    async def _watch(self, service: _Service) -> None:
        """Return when the process exits; meanwhile keep its shown state true."""
        while not service.exited.is_set():
            try:
                await asyncio.wait_for(service.exited.wait(), _WATCH_S)
            except TimeoutError:
                if service.spec.check is not None:
                    alive = await service.spec.check()
                    if not service.exited.is_set():
                        self._set(service, "running" if alive else "not answering")

    async def _become_ready(self) -> None:
        for service in self._services.values():
            await service.healthy.wait()
        deadline = time.monotonic() + READY_TIMEOUT_S
        while self._ready is not None and not await self._ready():
            if time.monotonic() > deadline:
                raise UnavailableError(
                    "not_ready",
                    f"Everything runs, but {self._plan.api_url}/readyz is not 200 after {READY_TIMEOUT_S:.0f} s. "
                    f"End of its log:\n{processes.tail(self._home.log_file('api'))}",
                )
            await asyncio.sleep(0.25)
        self._phase = "ready"
        self._save()
        took_s = (datetime.now(UTC) - self._started_at).total_seconds()
        self._report(Notice("ready", "", f"ready in {took_s:.1f} s"))

    def _start_failed(self, service: _Service, what: str) -> UnavailableError:
        name = service.spec.name
        log_path = self._home.log_file(name)
        return UnavailableError(
            "start_failed", f"{name} {what}. End of {log_path}:\n{processes.tail(log_path)}", service=name
        )

    # -- stop

    def _asked_to_stop(self) -> None:
        self._hurry = self._stop.is_set()
        self._stop.set()

    async def _shut_down(self) -> None:
        """Stop in reverse order: first what nothing depends on, in waves, each wave together."""
        running = {name: s for name, s in self._services.items() if not s.spec.external_url}
        while running:
            needed = {name for s in running.values() for name in s.spec.depends_on}
            wave = [s for name, s in reversed(running.items()) if name not in needed]
            for service in wave or list(running.values()):
                running.pop(service.spec.name)
            await asyncio.gather(*(self._stop_one(service) for service in wave))
        await processes.end(processes.marked(self._stack_id), first=signal.SIGTERM, grace_s=1.0)

    async def _stop_one(self, service: _Service) -> None:
        process = service.process
        if process is not None and process.poll() is None:
            self._report(Notice("stopping", service.spec.name, f"pid {process.pid}"))
            process.send_signal(service.spec.stop_signal)
            deadline = time.monotonic() + service.spec.stop_timeout_s
            while process.poll() is None:
                if self._hurry or time.monotonic() > deadline:
                    process.kill()
                    process.wait()
                    left = processes.marked(self._stack_id, service.spec.name)
                    await processes.end(left, first=signal.SIGKILL, grace_s=1.0)
                    break
                await asyncio.sleep(0.02)
            self._report(Notice("stopped", service.spec.name, f"exit {self._exit(service)}"))
        self._set(service, "stopped")

    # -- state

    def _look_for_exits(self) -> None:
        for service in self._services.values():
            if service.process is not None and service.process.poll() is not None:
                service.exited.set()

    @staticmethod
    def _exit(service: _Service) -> str:
        code = service.process.returncode if service.process is not None else None
        if code is not None and code < 0:
            return signal.Signals(-code).name
        return f"status {code}"

    def _set(self, service: _Service, state: str) -> None:
        if service.state != state:
            service.state = state
            self._save()

    def _save(self) -> None:
        lines = []
        for service in self._services.values():
            process = service.process
            alive = process is not None and process.returncode is None
            lines.append(
                ServiceState(
                    name=service.spec.name,
                    pid=process.pid if process is not None and alive else None,
                    created=service.created if alive else None,
                    port=service.spec.port,
                    url=shown_url(service.spec),
                    state=service.state,
                    restarts=service.restarts,
                )
            )
        StackState(
            pid=os.getpid(),
            phase=self._phase,
            api_url=self._plan.api_url,
            data_dir=str(self._home.root),
            started_at=self._started_at.isoformat(),
            services=tuple(lines),
            failure=self._failure,
        ).write(self._home)
