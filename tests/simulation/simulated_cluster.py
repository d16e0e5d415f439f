"""One seed: a cluster, its users and its faults; then a time without faults, in which everything
must recover.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from tests.inline_workers import InlineWorkers

from transom.apiserver.core.context import UserInfo
from transom.apiserver.server import ServerOptions, build_api_server
from transom.apiserver.serving.inprocess import InProcessClient
from transom.client.api import ApiClient, is_not_found
from transom.client.leaderelection import LeaderElector
from transom.client.resources import NAMESPACES, NODES
from transom.controllers.base import ControllerSettings, ProvisionedVolume
from transom.controllers.manager import CONTROLLERS, USER, USER_AGENT, ControllerManager
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object
from transom.machinery.serviceaccounts import group_names, user_name
from transom.scheduler.scheduler import USER as SCHEDULER
from transom.scheduler.scheduler import Scheduler
from transom.store.memory import MemoryStore

from .faults import Faults, Line
from .goals import complaints
from .kubelets import LEASE_NAMESPACE, Container, Kubelet, Machine
from .loop import LoopClock, Standstill, run
from .processes import Component, Process, Resigned
from .script import PROVISIONER, Script
from .watchdog import Watchdog

ADMIN = UserInfo("admin", ("system:masters", "system:authenticated"))
_STEPS = 40
_STEP_SECONDS = 6.0
_FAULT_SECONDS = 10.0
_QUIET_SECONDS = 10.0  # without a commit, before it is worth looking whether everything is right
_PATIENCE = 3000.0  # the longest back-off is 1000 s, and may have to be waited for twice
_REST = 330.0  # longer than any component waits


@dataclass
class Outcome:
    seed: int
    problems: list[str]  # none: all went well
    seconds: float  # on the virtual clock
    commits: int
    digest: str  # of every commit: equal for equal runs
    story: list[str]  # what users and misfortune did


class _Disk:
    """Makes volumes out of nothing."""

    async def provision(
        self, claim: Object, storage_class: Object, name: str, node: str
    ) -> ProvisionedVolume:
        return ProvisionedVolume(
            {
                "capacity": claim["spec"]["resources"]["requests"],
                "accessModes": claim["spec"]["accessModes"],
                "hostPath": {"path": f"/disks/{name}"},
            }
        )

    async def delete(self, volume: Object) -> None:
        return


class SimulatedCluster:
    def __init__(self, seed: int, clock: LoopClock, listen: Callable[[str], None] | None) -> None:
        self.rng = random.Random(seed)
        self.clock = clock
        self._listen = listen  # to every write, too
        self.story: list[str] = []
        self.api = build_api_server(
            ServerOptions(
                store=MemoryStore(clock),
                workers=InlineWorkers(),
                clock=clock,
                rng=self._random(),
                feature_gates={"TTLAfterFinished": True},
            )
        )
        self.client = InProcessClient(self.api, ADMIN, user_agent="kubectl")
        self.faults = Faults(self._random())
        self._settings = ControllerSettings(
            root_ca="-",
            sign=lambda claims: "token of " + claims["sub"],
            provisioners={PROVISIONER: _Disk()},
            node_grace=self.rng.choice((20.0, 40.0)),
            pod_cidrs=("10.244.0.0/16",),
            load_balancers="127.8.0.0/24",
        )
        self.machines: list[Machine] = []
        for number in range(self.rng.randrange(3, 6)):
            windows = number == 1
            self.machines.append(
                Machine(
                    f"{'win' if windows else 'lin'}{number}",
                    windows=windows,
                    zone=f"zone-{number % 2}",
                    cpu=12 if windows else self.rng.choice((8, 16)),
                    on_start=self._started,
                )
            )
        self._kubelets: dict[str, Kubelet] = {}
        self.components = self._components()
        self.nodes = {machine.name: self._node(machine) for machine in self.machines}
        self._cut: set[str] = set()
        self._busy: set[str] = set()  # machines that have a misfortune already
        self.script = Script(self.client, clock, self._random(), self.report)
        self.watchdog: Watchdog | None = None

    def _random(self) -> random.Random:
        return random.Random(self.rng.getrandbits(64))

    def report(self, text: str) -> None:
        line = f"{self.clock.monotonic():9.3f}s  {text}"
        self.story.append(line)
        if self._listen is not None:
            self._listen(line)

    def _tell_call(self, text: str) -> None:
        assert self._listen is not None
        self._listen(f"{self.clock.monotonic():9.3f}s      {text}")

    def _started(self, machine: Machine, container: Container) -> None:
        assert self.watchdog is not None
        self.watchdog.started(machine, container)

    # ---- who is there ----

    def _client(self, line: Line, who: str, name: str, *groups: str, agent: str = "") -> ApiClient:
        inner = InProcessClient(
            self.api, UserInfo(name, (*groups, "system:authenticated")), user_agent=agent or who
        )
        return line.client(inner, who)

    def _line(self, name: str) -> Line:
        return Line(self.faults, name, self._tell_call if self._listen is not None else None)

    def _process(self, name: str, component: Component) -> Process:
        def line() -> Line:
            made = self._line(name)
            made.cut = name in self._cut
            return made

        return Process(name, component, self.faults, self._random(), self.report, line)

    def _components(self) -> list[Process]:
        """The scheduler, and the controllers in one process or in several; some have another that
        stands by.
        """
        groups: list[list[str]] = [[] for _ in range(self.rng.randrange(1, 4))]
        for row in CONTROLLERS:
            self.rng.choice(groups).append(row.name)
        wanted: dict[str, Component] = {"scheduler": self._run_scheduler}
        for number, names in enumerate(filter(None, groups)):
            wanted[f"controllers-{number}"] = self._manager(names)
        made = []
        for name, component in wanted.items():
            if self.rng.random() < 0.7:
                made.append(self._process(name, component))
            else:
                made += [
                    self._process(f"{name}-{twin}", self._elected(name, component)) for twin in "ab"
                ]
        return made

    def _elected(self, name: str, component: Component) -> Component:
        async def run_elected(line: Line, rng: random.Random) -> None:
            client = line.client(InProcessClient(self.api, ADMIN), line.name)
            identity = f"{line.name}_{rng.getrandbits(32):08x}"
            elector = LeaderElector(client, "kube-system", name, identity, self.clock, rng)
            await elector.run(lambda: component(line, rng))
            raise Resigned

        return run_elected

    def _manager(self, names: list[str]) -> Component:
        async def run_manager(line: Line, rng: random.Random) -> None:
            def client(identity: str) -> ApiClient:
                if not identity:
                    return self._client(line, line.name, USER, agent=USER_AGENT)
                name = user_name("kube-system", identity)
                return self._client(
                    line, identity, name, *group_names("kube-system"), agent=USER_AGENT
                )

            await ControllerManager(
                client, self.clock, rng, self._settings, controllers=names
            ).run()

        return run_manager

    async def _run_scheduler(self, line: Line, rng: random.Random) -> None:
        await Scheduler(self._client(line, "scheduler", SCHEDULER), self.clock, rng).run()

    def _node(self, machine: Machine) -> Process:
        async def run_kubelet(line: Line, rng: random.Random) -> None:
            client = self._client(
                line, machine.name, f"system:node:{machine.name}", "system:nodes", agent="kubelet"
            )
            self._kubelets[machine.name] = kubelet = Kubelet(machine, client, self.clock, rng)
            await kubelet.run()

        return self._process(machine.name, run_kubelet)

    # ---- what happens to them ----

    async def outages(self) -> None:
        acts: list[tuple[Callable[[], Coroutine[Any, Any, None]], int]] = [
            (self._crash, 10),
            (self._crash_now, 2),
            (self._halt, 3),
            (self._drop_watches, 5),
            (self._compact, 2),
            (self._outage, 1),
            (self._cut_off, 3),
            (self._power_off, 3),
            (self._restart_kubelet, 3),
            (self._flake, 6),
        ]
        # Each seed leaves out some, so that none hides what another would show.
        acts = [row for row in acts if self.rng.random() < 0.7]
        if not acts:
            return
        async with asyncio.TaskGroup() as group:
            while True:
                await self.clock.sleep(self.rng.expovariate(1 / _FAULT_SECONDS))
                act = self.rng.choices([row[0] for row in acts], [row[1] for row in acts])[0]
                group.create_task(act())

    async def _crash(self) -> None:
        self.rng.choice(self.components).crash_at_call(self.rng.randrange(1, 40))

    async def _crash_now(self) -> None:
        process = self.rng.choice(self.components)
        self.report(f"{process.name} crashes")
        process.crash()

    async def _halt(self) -> None:
        process = self.rng.choice(self.components)
        self.report(f"{process.name} halts")
        process.halt()
        await self.clock.sleep(self.rng.random() * 60)
        process.start()

    async def _drop_watches(self) -> None:
        self.report("all watches are cut")
        self._drop_all()

    def _drop_all(self) -> None:
        for process in (*self.components, *self.nodes.values()):
            if process.line is not None:
                process.line.drop_watches()

    async def _compact(self) -> None:
        """Who comes back to the watch now has to list again."""
        self.report("the history is forgotten, and all watches are cut")
        self.api.storage.store.compact(self.api.storage.store.revision)
        self._drop_all()

    async def _outage(self) -> None:
        self.report("the API server cannot be reached")
        self.faults.outage = True
        self._drop_all()
        await self.clock.sleep(self.rng.random() * 20)
        self.faults.outage = False
        self.report("the API server can be reached again")

    async def _restart_kubelet(self) -> None:
        process = self.rng.choice([*self.nodes.values()])
        self.report(f"the kubelet of {process.name} crashes")
        process.crash()

    async def _flake(self) -> None:
        kubelet = self._kubelets.get(self.rng.choice(self.machines).name)
        if kubelet is not None:
            kubelet.flake(self.rng)

    async def _cut_off(self) -> None:
        """The node goes on without the API server."""
        process = self.rng.choice([*self.nodes.values()])
        if process.name in self._busy:
            return
        self._busy.add(process.name)
        self.report(f"{process.name} is cut off")
        self._connect(process, False)
        await self.clock.sleep(self.rng.choice((5, 60, 200)) * self.rng.random())
        self.report(f"{process.name} is connected")
        self._connect(process, True)
        self._busy.discard(process.name)

    def _connect(self, process: Process, connected: bool) -> None:
        (self._cut.discard if connected else self._cut.add)(process.name)
        if process.line is not None:
            process.line.cut = not connected
            if not connected:
                process.line.drop_watches()

    async def _power_off(self) -> None:
        """The node loses what it runs. Sometimes an administrator who sees that takes it out of the
        cluster.
        """
        machine = self.rng.choice(self.machines)
        if machine.name in self._busy:
            return
        self._busy.add(machine.name)
        process = self.nodes[machine.name]
        self.report(f"{machine.name} is switched off")
        process.halt()
        machine.power_off()
        await self.clock.sleep(self.rng.choice((5, 60, 200)) * self.rng.random())
        if self.rng.random() < 0.3:
            self.report(f"user deletes node {machine.name}")
            try:
                await self.client.delete(NODES, "", machine.name)
            except ApiError as problem:
                if not is_not_found(problem):
                    raise
            await self.clock.sleep(self.rng.random() * 120)
        self.report(f"{machine.name} is switched on")
        process.start()
        self._busy.discard(machine.name)

    def heal(self) -> None:
        self.faults.heal()
        self._cut.clear()
        for process in (*self.components, *self.nodes.values()):
            self._connect(process, True)
            if process.line is not None:
                process.line.on_call = None
            process.start()

    # ---- from the beginning to the end ----

    async def play(self) -> list[str]:
        await self.api.start()
        self.watchdog = watchdog = Watchdog(
            self.api, self.clock, self.machines, self.faults, self.report
        )
        processes = [*self.components, *self.nodes.values()]
        try:
            try:
                await self.client.create(NAMESPACES, "", {"metadata": {"name": LEASE_NAMESPACE}})
            except ApiError as problem:
                self.report(str(problem))
            await self.script.prepare()
            for process in processes:
                process.start()
            await self.clock.sleep(5)
            self.faults.begin(Faults.drawn(self._random()))
            self.report(f"faults begin: {self.faults}")
            await self._chaos()
            self.heal()
            await self.script.finish()
            self.report("faults end")
            return watchdog.violations or await self._peace(watchdog) or watchdog.violations
        finally:
            for process in processes:
                await process.stop()
            await self.api.stop()

    async def _chaos(self) -> None:
        outages = asyncio.create_task(self.outages())
        try:
            await self.script.run(_STEPS, _STEP_SECONDS)
        finally:
            outages.cancel()
            await asyncio.wait((outages,))
        if not outages.cancelled() and outages.exception() is not None:
            outages.result()

    async def _peace(self, watchdog: Watchdog) -> list[str]:
        """Wait until everything is right; then it must stay so, without further actions."""
        end = self.clock.monotonic() + _PATIENCE
        problems = ["nothing came to rest"]
        looked = -1.0
        while self.clock.monotonic() < end and not watchdog.violations:
            await self.clock.sleep(1)
            now = self.clock.monotonic()
            if now - watchdog.last_unrest < _QUIET_SECONDS or (
                watchdog.last_unrest == looked and now % 60 > 1
            ):
                continue
            looked = watchdog.last_unrest
            problems = complaints(self.api, self.clock, self.machines)
            if problems:
                continue
            before = watchdog.last_unrest
            await self.clock.sleep(_REST)
            problems = complaints(self.api, self.clock, self.machines)
            if not problems and watchdog.last_unrest == before:
                self.report("everything is right")
                return []
            if watchdog.last_unrest != before:
                problems.append(f"{watchdog.unrest} was written though everything was right")
        return problems


class _LoggedErrors(logging.Handler):
    """What components log as an error is a mistake of theirs: they expect what the network does."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        super().__init__(logging.INFO if cluster._listen is not None else logging.ERROR)
        self._world = cluster
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = self.format(record)
        if record.levelno >= logging.ERROR:
            self.found.append(text)
            self._world.report(f"ERROR {text}")
        elif self._world._listen is not None:
            self._world._tell_call(f"log: {text}")


def simulate(seed: int, listen: Callable[[str], None] | None = None) -> Outcome:
    """Play one seed. `listen` gets every line of the story and every write, as they happen."""

    worlds: list[SimulatedCluster] = []

    async def main(clock: LoopClock) -> Outcome:
        cluster = SimulatedCluster(seed, clock, listen)
        worlds.append(cluster)
        mistakes = _LoggedErrors(cluster)
        log = logging.getLogger("transom")
        level = log.level
        log.addHandler(mistakes)
        log.setLevel(mistakes.level)
        try:
            problems = await cluster.play()
        except Exception as problem:
            logging.getLogger("transom.simulation").exception("the simulation failed")
            problems = [repr(problem)]
        finally:
            log.removeHandler(mistakes)
            log.setLevel(level)
        watchdog = cluster.watchdog
        assert watchdog is not None
        return Outcome(
            seed,
            [*mistakes.found, *problems],
            clock.monotonic(),
            watchdog.commits,
            watchdog.digest.hexdigest()[:16],
            cluster.story,
        )

    try:
        return run(main)
    except Standstill as problem:
        story = worlds[0].story if worlds else []
        return Outcome(seed, [str(problem)], 0.0, 0, "", story)
