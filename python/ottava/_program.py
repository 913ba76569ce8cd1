"""The command `ottava` of the wheel: replaces this process by the program in the package."""

import os
import sys

from ._paths import PACKAGE

# Files of CA certificates: Debian's, which the libcurl in the wheel reads by default, then Fedora's, SUSE's
# and Alpine's.
_CERTIFICATES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
                 "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem")


def main():
    program = str(PACKAGE / "bin" / "ottava")
    found = [path for path in _CERTIFICATES if os.path.exists(path)]
    if found and found[0] != _CERTIFICATES[0]:
        os.environ.setdefault("SSL_CERT_FILE", found[0])
    try:
        os.execv(program, [program, *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"ottava: {program} cannot be started ({error.strerror}); install the wheel again")
