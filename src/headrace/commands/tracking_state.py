"""The state of one client's tracking (CLIENT TRACKING): its options, without the keys it has read."""

from __future__ import annotations

import cython

from headrace.visibility import Public


@cython.final
@cython.cclass
class TrackingState:
    """One client's options, from its first CLIENT TRACKING ON until it disconnects, even if tracking is off.

    The keys that a client has read refer to this object: those read before an OFF and a later ON still count.
    """

    client_id: cython.longlong
    is_on: Public[cython.bint]
    broadcasting: Public[cython.bint]  # BCAST: informed of all keys with a prefix, not of those it has read
    opt_in: Public[cython.bint]  # keys are remembered only after CLIENT CACHING YES
    opt_out: Public[cython.bint]  # keys are remembered except after CLIENT CACHING NO
    no_loop: Public[cython.bint]  # not informed of its own changes
    # CLIENT CACHING was sent; it applies to the next request or transaction.
    caching_command_sent: Public[cython.bint]
    redirect_client_id: Public[cython.longlong]  # ID of the client that is informed instead; 0: none
    redirect_broken: Public[cython.bint]  # that client had disconnected when it was to be informed
    prefixes: dict[bytes, None]  # of BCAST

    def __init__(self, client_id: cython.longlong) -> None:
        self.client_id = client_id
        self.redirect_client_id = 0
        self.prefixes = {}
        self.clear()

    @cython.ccall
    def clear(self) -> cython.void:
        """Reset all options except the redirection; turn tracking off. The caller removes the prefixes."""
        self.is_on = False
        self.broadcasting = False
        self.opt_in = False
        self.opt_out = False
        self.no_loop = False
        self.caching_command_sent = False
        self.redirect_broken = False

    @cython.ccall
    def remembers_reads(self) -> cython.bint:
        """Return whether the keys that the current request reads are remembered."""
        if not self.is_on or self.broadcasting:
            return False
        if self.opt_in:
            return self.caching_command_sent
        return not (self.opt_out and self.caching_command_sent)
