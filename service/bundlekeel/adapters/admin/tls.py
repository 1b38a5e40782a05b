"""TLS of the admin client: what it trusts, and the certificate it shows."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

from bundlekeel.core.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminTls:
    """`verify=False` is for laboratories only; the settings warn about it."""

    trust_certs: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    verify: bool = True

    def context(self) -> ssl.SSLContext:
        """An SSL context, TLS 1.2 at least. ConfigError naming the file that cannot be used."""
        context = ssl.create_default_context()
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            if self.trust_certs is not None:
                context.load_verify_locations(cafile=self.trust_certs)
            if self.cert is not None:
                context.load_cert_chain(self.cert, self.key)
        except (OSError, ssl.SSLError) as error:
            name = self.trust_certs if self.cert is None else f"{self.trust_certs} or {self.cert}"
            raise ConfigError(f"TLS file {name} cannot be used: {error}", field="admin.tls") from error
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context
