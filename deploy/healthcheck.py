"""Check the server of this container: exit 0 if it executes commands, 1 if not, as while it loads its data.

A server that asks for a password is healthy: the check has none. The port is that of HEADRACE_PORT; for a
server with another one, or with TLS only, give a check of your own (`--health-cmd`).
"""

import os
import socket
import sys

SECONDS_MAX = 3
HEALTHY = (b"+PONG\r\n", b"-NOAUTH ")


def main() -> int:
    port = int(os.environ.get("HEADRACE_PORT", "7777"))
    try:
        with socket.create_connection(("localhost", port), SECONDS_MAX) as client:
            client.sendall(b"PING\r\n")
            reply = client.recv(200)
    except OSError as error:
        print(f"no reply at port {port}: {error}", file=sys.stderr)
        return 1
    if reply.startswith(HEALTHY):
        return 0
    print(f"PING at port {port}: {reply.decode(errors='replace').strip()}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
