"""A certificate of the server's own, for clients that insist on https; needs the extra `tls`."""

import ssl
from pathlib import Path

LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")


def certified(host: str, ca_file: Path) -> ssl.SSLContext:
    """Return the context of a server whose certificate is signed by a new authority.

    The authority's certificate is written to `ca_file`, for the clients to trust; its key is
    forgotten. Raises `ValueError` without the extra, and for a file that cannot be written.
    """
    try:
        import trustme
    except ImportError:
        raise ValueError("--tls needs the extra `tls`: pip install 'x402sim[tls]'") from None
    authority = trustme.CA(organization_name="x402sim, for this run only")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    names = dict.fromkeys((*LOCAL_NAMES, host) if host not in ("0.0.0.0", "::") else LOCAL_NAMES)  # noqa: S104
    authority.issue_cert(*names).configure_cert(context)
    try:
        authority.cert_pem.write_to_path(str(ca_file))
    except OSError as error:
        raise ValueError(f"--tls {ca_file}: cannot write the file: {error.strerror}") from None
    return context
