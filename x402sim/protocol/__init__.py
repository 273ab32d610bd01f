"""The rules of the protocol, pure: no I/O, no clock (functions take `now`), no randomness."""
