"""Commands on consumer groups: XREADGROUP, XACK, XCLAIM, XPENDING, XNACK, XGROUP."""
