"""The parts of a server, created once, in the order in which they depend on each other.

    config, control ─▶ engine ─▶ event loop ─▶ listeners, metrics
                                     └─▶ disk: cold files, startup, durability, saving, the log's switch
                                               └─▶ replication
                                                     └─▶ shutdown, INFO, CONFIG SET, timers

Two parts use later ones, and get functions that return them: commands reach all parts through the engine's
host, and a snapshot names its position in the stream of replication.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.engine.clock import RealClock
from headrace.engine.engine import Engine
from headrace.keyspace.settings import Settings
from headrace.persistence.data_directory import DiskDirectory
from headrace.server.commit import Durability
from headrace.server.config.config import Config
from headrace.server.config.engine_settings import apply_settings
from headrace.server.config_applier import ConfigApplier
from headrace.server.disk.cold_tasks import ColdTasks
from headrace.server.disk.log_switch import LogSwitch
from headrace.server.disk.reloading import Reloading
from headrace.server.disk.saving import SaveManager
from headrace.server.disk.startup import Startup
from headrace.server.host import ServerHost, Services
from headrace.server.loop.event_loop import EventLoop
from headrace.server.network.listeners import Listeners
from headrace.server.observe.metrics import MetricsEndpoint
from headrace.server.process_info import ProcessInfo
from headrace.server.replication.server_replication import ServerReplication
from headrace.server.run_control import RunControl
from headrace.server.script_shutdown import ScriptShutdown
from headrace.server.shutdown import Shutdown
from headrace.server.status_files import StatusFiles
from headrace.server.timers import Timers


@dataclass(frozen=True)
class Parts:
    """The parts of one server that the class Server starts, runs and closes."""

    config: Config
    clock: RealClock
    disk: DiskDirectory
    engine: Engine
    loop: EventLoop
    cold: ColdTasks
    control: RunControl
    listeners: Listeners
    metrics: MetricsEndpoint
    status_files: StatusFiles
    startup: Startup
    durability: Durability
    saving: SaveManager
    log_switch: LogSwitch
    replication: ServerReplication
    shutdown: Shutdown
    config_applier: ConfigApplier
    timers: Timers


def create_parts(config: Config, clock: RealClock, disk: DiskDirectory) -> Parts:
    """Create the parts of a server. Nothing is read, written or listened on yet. disk: the data directory."""
    settings = Settings()
    apply_settings(config, settings)
    engine = Engine(settings, ServerHost(config, settings, lambda: services))
    loop = EventLoop(engine, clock)
    control = RunControl(loop.interrupt)
    wake = control.wake
    listeners = Listeners(config, loop)
    metrics = MetricsEndpoint(config, loop, wake)
    status_files = StatusFiles(config)
    cold = ColdTasks(config, engine, clock, disk, wake)
    startup = Startup(config, engine, loop, disk, control.is_ending)
    durability = Durability(config, engine, loop, disk, cold.cold_files, wake)
    saving = SaveManager(
        config,
        engine,
        loop,
        disk,
        durability,
        wake,
        lambda: replication.snapshot_aux_fields(),
        clock.now_ms(),
    )
    log_switch = LogSwitch(config, engine, durability, saving)
    reloading = Reloading(config, engine, startup, durability, saving)

    replication = ServerReplication(
        config, engine, loop, disk, durability, wake, lambda: listeners.announced_port, log_switch.restart
    )

    shutdown = Shutdown(config, engine, durability, saving, replication, control)
    script_shutdown = ScriptShutdown(config, control, engine.scripts, durability, shutdown)
    info = ProcessInfo(config, engine, loop, listeners, startup, durability, saving, replication, cold)
    config_changes = ConfigApplier(
        config, engine, loop, listeners, disk, status_files, cold, durability, saving, log_switch, replication
    )
    timers = Timers(config, engine, loop, durability, saving, replication, info)
    services = Services(
        loop=loop,
        durability=durability,
        saving=saving,
        reloading=reloading,
        replication=replication,
        config_applier=config_changes,
        info=info,
        control=control,
        shutdown=shutdown,
        script_shutdown=script_shutdown,
    )
    return Parts(
        config=config,
        clock=clock,
        disk=disk,
        engine=engine,
        loop=loop,
        cold=cold,
        control=control,
        listeners=listeners,
        metrics=metrics,
        status_files=status_files,
        startup=startup,
        durability=durability,
        saving=saving,
        log_switch=log_switch,
        replication=replication,
        shutdown=shutdown,
        config_applier=config_changes,
        timers=timers,
    )
