"""Apply the configuration to the parts of the server, at the start and after each CONFIG SET."""

from __future__ import annotations

import logging
import resource

from headrace import limits
from headrace.engine.engine import Engine
from headrace.errors import CommandError, HeadraceError
from headrace.persistence.data_directory import DiskDirectory
from headrace.server.commit import Durability
from headrace.server.config.buffer_limits import OutputBufferLimits
from headrace.server.config.config import Config, config_set_error
from headrace.server.config.engine_settings import apply_settings
from headrace.server.disk.cold_tasks import ColdTasks
from headrace.server.disk.log_switch import LogSwitch
from headrace.server.disk.saving import SaveManager
from headrace.server.loop.event_loop import EventLoop
from headrace.server.network.listeners import Listeners
from headrace.server.observe import memory_limit
from headrace.server.observe.logs import apply_message_log_config
from headrace.server.replication.server_replication import ServerReplication
from headrace.server.status_files import StatusFiles

DESCRIPTORS_KEPT = 64  # for other uses than clients: listeners, files, libraries
TOO_MANY_CLIENTS = "The operating system is not able to handle the specified number of clients"


class ConfigApplier:
    """Applies the configuration at the start, and after each CONFIG SET."""

    def __init__(
        self,
        config: Config,
        engine: Engine,
        loop: EventLoop,
        listeners: Listeners,
        disk: DiskDirectory,
        status_files: StatusFiles,
        cold: ColdTasks,
        durability: Durability,
        saving: SaveManager,
        log_switch: LogSwitch,
        replication: ServerReplication,
    ) -> None:
        self.config = config
        self.engine = engine
        self.loop = loop
        self.listeners = listeners
        self.disk = disk
        self.status_files = status_files
        self.cold = cold
        self.durability = durability
        self.saving = saving
        self.log_switch = log_switch
        self.replication = replication

    def set(self, pairs: list[tuple[bytes, bytes]]) -> None:
        """Run CONFIG SET: change and apply all of the directives or none. Raises CommandError."""
        config = self.config
        before, adjusted = dict(config.values), dict(config.overridden_values)
        config.set(pairs)
        try:
            self.apply()
        except CommandError:  # it cannot be applied: restore the earlier values
            config.values, config.overridden_values = before, adjusted
            config.names_being_set = frozenset()
            self.apply()
            raise
        finally:
            config.names_being_set = frozenset()

    def apply(self) -> None:
        """Apply the current configuration. Raises CommandError if a changed directive cannot be applied."""
        config, loop = self.config, self.loop
        tls = self.listeners.tls
        # First: the certificate may be invalid, or a port unavailable.
        context = tls.reloaded_context() if tls is not None else None
        self._apply_ports()
        apply_settings(config, self.engine.keyspace.settings)
        self.engine.auth.acl_log.set_max_entries(config.number("acllog-max-len"))
        self.engine.timing.refresh()
        self._make_room_for_clients()
        unsent = config.values["client-output-buffer-limit"]
        assert isinstance(unsent, OutputBufferLimits)
        loop.output_monitor.set_limits(unsent)
        self.engine.pubsub.unread_bytes_max = unsent.pubsub.hard or limits.REPLY_BYTES_MAX
        memory_limit.apply(config, self.engine)
        self.cold.apply_config()
        loop.query_buffer_max = config.number("client-query-buffer-limit")
        loop.bulk_max = config.number("proto-max-bulk-len")
        for connection in loop.connections.values():
            connection.parser.bulk_max = loop.bulk_max
            connection.session.reply.limit = loop.output_monitor.reply_limit
        apply_message_log_config(config)
        self.durability.apply_config()
        self.saving.update_write_gate()
        self.replication.update_write_gate()
        self.log_switch.apply()
        if tls is not None and context is not None:
            tls.context = context

    def _apply_ports(self) -> None:
        """Listen on the ports that CONFIG SET has changed. Raises CommandError."""
        if not self.listeners.apply_ports():
            return
        try:
            self.disk.set_holder(", ".join(self.listeners.addresses))
            self.status_files.rewrite_if_written("port-file", str(self.listeners.announced_port))
        except (OSError, HeadraceError) as wrong:
            logging.getLogger("headrace").error(
                "cannot write the new port to the lock file or port-file: %s", wrong
            )

    def _make_room_for_clients(self) -> None:
        """Raise the limit of descriptors for maxclients; if the system refuses, lower maxclients.

        Raises CommandError if the running CONFIG SET requested so many.
        """
        wanted = self.config.number("maxclients") + DESCRIPTORS_KEPT
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft == resource.RLIM_INFINITY or soft >= wanted:
            return
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        if most < wanted:
            clients = max(most - DESCRIPTORS_KEPT, 1)
            if "maxclients" in self.config.names_being_set:
                raise config_set_error("maxclients", f"{TOO_MANY_CLIENTS}, try with {clients}")
            self.config.override("maxclients", clients)
            logging.getLogger("headrace").warning(
                "maxclients is %d: the system allows no more than %d descriptors (ulimit -n)",
                clients,
                most,
            )
