import asyncio
import ssl
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from transom.kit import pki


def der_of(pair: pki.KeyPair) -> bytes:
    return x509.load_pem_x509_certificate(pair.certificate).public_bytes(Encoding.DER)


def test_mutual_tls_works_and_identifies_the_client(tmp_path: Path) -> None:
    ca = pki.make_ca("kubernetes")
    server = pki.issue_server(
        ca, "kube-apiserver", dns=["kubernetes.default.svc"], ips=["127.0.0.1", "::1"]
    )
    client = pki.issue_client(ca, "system:node:wörker", ["system:nodes", "system:masters"])
    for name, pair in (("ca", ca), ("server", server), ("client", client)):
        pki.save_key_pair(pair, tmp_path / f"{name}.crt", tmp_path / f"{name}.key")
        assert (tmp_path / f"{name}.key").stat().st_mode & 0o777 == 0o600
        assert (tmp_path / f"{name}.crt").stat().st_mode & 0o777 == 0o644
        assert pki.load_key_pair(tmp_path / f"{name}.crt", tmp_path / f"{name}.key") == pair

    async def handshake(hostname: str) -> tuple[str, list[str]]:
        listening = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        listening.load_cert_chain(tmp_path / "server.crt", tmp_path / "server.key")
        listening.load_verify_locations(tmp_path / "ca.crt")
        listening.verify_mode = ssl.CERT_REQUIRED
        calling = ssl.create_default_context(cafile=str(tmp_path / "ca.crt"))
        calling.verify_flags |= ssl.VERIFY_X509_STRICT
        calling.load_cert_chain(tmp_path / "client.crt", tmp_path / "client.key")
        seen: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            seen.set_result(writer.get_extra_info("ssl_object").getpeercert(binary_form=True))
            writer.close()

        async with await asyncio.start_server(connected, "127.0.0.1", 0, ssl=listening) as listener:
            port = listener.sockets[0].getsockname()[1]
            _, writer = await asyncio.open_connection(
                "127.0.0.1", port, ssl=calling, server_hostname=hostname
            )
            subject = pki.subject_of(await seen)
            writer.close()
            return subject

    expected = ("system:node:wörker", ["system:nodes", "system:masters"])
    assert asyncio.run(handshake("127.0.0.1")) == expected
    assert asyncio.run(handshake("kubernetes.default.svc")) == expected
    with pytest.raises(ssl.SSLCertVerificationError):
        asyncio.run(handshake("elsewhere.example"))


def test_certificates_carry_the_usages_kubernetes_gives_them() -> None:
    ca = pki.make_ca("kubernetes")
    authority = x509.load_pem_x509_certificate(ca.certificate)
    usage = authority.extensions.get_extension_for_class(x509.KeyUsage)
    assert usage.critical and usage.value.key_cert_sign and usage.value.digital_signature
    assert authority.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    for pair, purpose in (
        (pki.issue_server(ca, "s"), ExtendedKeyUsageOID.SERVER_AUTH),
        (pki.issue_client(ca, "c", []), ExtendedKeyUsageOID.CLIENT_AUTH),
    ):
        leaf = x509.load_pem_x509_certificate(pair.certificate)
        leaf.verify_directly_issued_by(authority)
        assert list(leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value) == [
            purpose
        ]
        assert not leaf.extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign
        assert leaf.not_valid_before_utc.timestamp() < time.time() - 60
        assert leaf.serial_number.bit_length() > 64


def test_no_key_in_the_repr() -> None:
    assert b"PRIVATE" in pki.make_ca("x").key
    assert "PRIVATE" not in repr(pki.make_ca("x"))


def test_subject_of_agrees_with_the_library() -> None:
    ca = pki.make_ca("kubernetes")
    for cn, organizations in (
        ("a", []),
        ("system:node:" + "b" * 253, ["o" * 64] * 5),
        ("ü", ["日本"]),
    ):
        assert pki.subject_of(der_of(pki.issue_client(ca, cn, organizations))) == (
            cn,
            organizations,
        )


def certificate_with_uids(*uids: str) -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    oid = x509.ObjectIdentifier("1.3.6.1.4.1.57683.2")
    attributes = [x509.NameAttribute(NameOID.COMMON_NAME, "jane")]
    attributes += [x509.NameAttribute(oid, uid) for uid in uids]
    name = x509.Name(attributes)
    now = datetime(2026, 1, 1, tzinfo=UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, now, now)
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.DER)


def test_uids_of_the_subject() -> None:
    assert pki.uids_of(certificate_with_uids()) == ()
    one = certificate_with_uids("a-uid")
    assert (pki.uids_of(one), pki.subject_of(one)) == (("a-uid",), ("jane", []))
    assert pki.uids_of(certificate_with_uids("a-uid", "b-uid")) == ("a-uid", "b-uid")
    number = one.replace(b"\x0c\x05a-uid", b"\x02\x05a-uid")
    assert pki.uids_of(number) == (None,)


# before 1970, after 2049
@pytest.mark.parametrize("now", [-600_000_000.0, 0.0, 1_600_000_000.0, 2_600_000_000.0])
def test_validity_of_agrees_with_the_library(now: float) -> None:
    der = der_of(pki.issue_client(pki.make_ca("kubernetes", now=now), "a", now=now))
    read = x509.load_der_x509_certificate(der)
    assert pki.validity_of(der) == (
        read.not_valid_before_utc.timestamp(),
        read.not_valid_after_utc.timestamp(),
    )


def test_malformed_certificates_are_refused() -> None:
    der = der_of(pki.issue_client(pki.make_ca("kubernetes"), "admin", ["system:masters"]))
    subject_end = der.index(b"admin") + len(b"admin")
    for cut in range(subject_end):
        with pytest.raises(ValueError):
            pki.subject_of(der[:cut])
        with pytest.raises(ValueError):
            pki.validity_of(der[:cut])
    with pytest.raises(ValueError):
        pki.subject_of(b"\x30\x80" + der[2:])
