"""Certificates and node keys, made on the spot, readable by their owner only.

A small authority of its own signs the SuperLink's certificate; whoever has ``ca.crt`` can check it.
Every SuperNode has a key pair (ECDSA on P-384, the curve Flower wants) whose public half is
registered with the SuperLink.
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from fedskew.errors import RunError

YEARS = 1
USES = (
    "digital_signature",
    "content_commitment",
    "key_encipherment",
    "data_encipherment",
    "key_agreement",
    "key_cert_sign",
    "crl_sign",
    "encipher_only",
    "decipher_only",
)


@dataclass(frozen=True)
class Certificates:
    """Where the three files of a SuperLink lie."""

    authority: Path
    certificate: Path
    key: Path


def private_folder(path: Path) -> Path:
    """A folder only its owner can look into."""
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(0o700)
    return path


def write_private(path: Path, content: bytes) -> Path:
    """A file only its owner can read, from its first byte on."""
    path.unlink(missing_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
    return path


def make_certificates(folder: Path, hosts: Sequence[str]) -> Certificates:
    """An authority and a certificate for these host names and addresses. The authority's own key
    is thrown away.
    """
    crypto = _crypto()
    authority, server = (crypto.ec.generate_private_key(crypto.ec.SECP384R1()) for _ in range(2))
    name = _name(crypto, "fedskew fleet authority")
    root = _builder(crypto, name, name, authority.public_key(), authority, ca=True)
    names = crypto.x509.SubjectAlternativeName([_subject(crypto, host) for host in hosts])
    leaf = _builder(crypto, _name(crypto, hosts[0]), name, server.public_key(), authority, ca=False)
    leaf = leaf.add_extension(names, critical=False)
    private_folder(folder)
    pem = crypto.serialization.Encoding.PEM
    signed = [
        builder.sign(authority, crypto.hashes.SHA384()).public_bytes(pem)
        for builder in (root, leaf)
    ]
    return Certificates(
        write_private(folder / "ca.crt", signed[0]),
        write_private(folder / "superlink.crt", signed[1]),
        write_private(folder / "superlink.key", _secret(crypto, server, "PKCS8")),
    )


def keep_or_make_certificates(folder: Path, hosts: Sequence[str]) -> Certificates:
    """Those of the folder, if they are for these hosts and good for a month: members keep their
    ca.crt. Else new ones.
    """
    files = Certificates(folder / "ca.crt", folder / "superlink.crt", folder / "superlink.key")
    if all(path.is_file() for path in (files.authority, files.certificate, files.key)):
        crypto = _crypto()
        found = crypto.x509.load_pem_x509_certificate(files.certificate.read_bytes())
        names = found.extensions.get_extension_for_class(crypto.x509.SubjectAlternativeName).value
        wanted = {_subject(crypto, host) for host in hosts}
        month = datetime.now(UTC) + timedelta(days=30)
        if wanted <= set(names) and found.not_valid_after_utc > month:
            return files
    return make_certificates(folder, hosts)


def make_node_key(folder: Path, name: str) -> tuple[Path, Path]:
    """(private, public) key of one SuperNode; an existing one is kept, so that the node keeps
    its number.
    """
    crypto = _crypto()
    private, public = folder / name, folder / f"{name}.pub"
    if private.is_file():
        key = _read_key(crypto, private)
    else:
        key = crypto.ec.generate_private_key(crypto.ec.SECP384R1())
        write_private(private, _secret(crypto, key, "OpenSSH"))
    kinds = crypto.serialization
    text = key.public_key().public_bytes(kinds.Encoding.OpenSSH, kinds.PublicFormat.OpenSSH)
    write_private(public, text + f" {name}\n".encode())
    return private, public


def _read_key(crypto: Any, path: Path) -> Any:
    try:
        return crypto.serialization.load_ssh_private_key(path.read_bytes(), None)
    except (OSError, ValueError, TypeError) as error:
        raise RunError(str(path), f"is no key ({error})", "Give another name") from None


def fingerprint_of(public_key: Path) -> str:
    """SHA256 of a public key, as ssh-keygen -l prints it."""
    crypto = _crypto()
    try:
        content = public_key.read_bytes()
        if b"PRIVATE" in content:
            what = "is a private key: it stays where it was made"
            raise RunError(str(public_key), what, "Give the file that ends in .pub")
        key = crypto.serialization.load_ssh_public_key(content)
        blob = base64.b64decode(content.split()[1])
    except (OSError, ValueError, IndexError) as error:
        raise RunError(
            str(public_key), f"is no public key ({error})", "Make one: fedskew flower join NAME"
        ) from None
    if not isinstance(key, crypto.ec.EllipticCurvePublicKey):
        raise RunError(str(public_key), "is of another kind", "Make one: fedskew flower join NAME")
    digest = base64.b64encode(hashlib.sha256(blob).digest()).decode()
    return f"SHA256:{digest.rstrip('=')}"


def _builder(crypto: Any, subject: Any, issuer: Any, key: Any, signer: Any, *, ca: bool) -> Any:
    """A certificate with the extensions that strict checkers want."""
    now, x509 = datetime.now(UTC), crypto.x509
    uses = dict.fromkeys(USES, False) | (
        {"key_cert_sign": True, "crl_sign": True} if ca else {"digital_signature": True}
    )
    return (
        crypto.x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(crypto.x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(days=365 * YEARS))
        .add_extension(x509.BasicConstraints(ca=ca, path_length=0 if ca else None), critical=True)
        .add_extension(x509.KeyUsage(**uses), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
    )


def _name(crypto: Any, text: str) -> Any:
    return crypto.x509.Name([crypto.x509.NameAttribute(crypto.x509.NameOID.COMMON_NAME, text[:64])])


def _subject(crypto: Any, host: str) -> Any:
    try:
        return crypto.x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return crypto.x509.DNSName(host)


def _secret(crypto: Any, key: Any, form: str) -> bytes:
    kinds = crypto.serialization
    text: bytes = key.private_bytes(
        kinds.Encoding.PEM, getattr(kinds.PrivateFormat, form), kinds.NoEncryption()
    )
    return text


def _crypto() -> Any:
    """The cryptography package, which Flower depends on, as one namespace."""
    try:
        from types import SimpleNamespace

        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError:
        raise RunError(
            "fedskew flower", "Flower is not installed", "Run: pip install 'fedskew[flower]'"
        ) from None
    names = {name: getattr(x509, name) for name in dir(x509) if not name.startswith("_")}
    names["NameOID"] = x509.oid.NameOID
    return SimpleNamespace(
        x509=SimpleNamespace(**names), hashes=hashes, serialization=serialization, ec=ec
    )
