"""TLS as vLLM's --ssl-* flags describe it."""

from __future__ import annotations

import ssl

from fastfront.errors import ConfigError


def server_context(
    certfile: str,
    keyfile: str | None = None,
    ca_certs: str | None = None,
    cert_reqs: int = ssl.CERT_NONE,
    ciphers: str | None = None,
) -> ssl.SSLContext:
    """A context for listeners; `certfile` may hold the key too; `cert_reqs` 0 none, 1 optional, 2 required.

    Raises ConfigError naming the setting that is wrong.
    """
    if cert_reqs not in (0, 1, 2):
        raise ConfigError(f"ssl_cert_reqs must be 0, 1 or 2, not {cert_reqs}")
    if cert_reqs and not ca_certs:
        raise ConfigError("ssl_cert_reqs asks for client certificates, and no ssl_ca_certs says whose are good")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(certfile, keyfile)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"ssl_certfile {certfile!r} with ssl_keyfile {keyfile!r}: {error}") from error
    if ca_certs:
        try:
            context.load_verify_locations(ca_certs)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"ssl_ca_certs {ca_certs!r}: {error}") from error
    context.verify_mode = ssl.VerifyMode(cert_reqs)
    if ciphers:
        try:
            context.set_ciphers(ciphers)
        except ssl.SSLError as error:
            raise ConfigError(f"ssl_ciphers {ciphers!r}: {error}") from error
    return context
