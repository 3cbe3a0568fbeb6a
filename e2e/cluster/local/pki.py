"""Certificates of a local cluster: two authorities, and one certificate per component and node (ECDSA P-256)."""

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from e2e.cluster.local.layout import CONTROL_PLANE_IP, KUBERNETES_SERVICE_IP, Node

VALID = datetime.timedelta(days=365)
CLOCK_SKEW = datetime.timedelta(minutes=5)


@dataclass(frozen=True)
class Authority:
    """A certificate authority whose key pair lies in `folder` as NAME.crt and NAME.key."""

    folder: Path
    name: str

    @classmethod
    def create(cls, folder: Path, name: str) -> "Authority":
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate = (
            _builder(subject, subject, key.public_key(), key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(_usage(authority=True), critical=True)
            .sign(key, hashes.SHA256())
        )
        _write(folder, name, key, certificate)
        return cls(folder, name)

    def issue(self, file: str, user: str, group: str = "", names: tuple[str, ...] = ()) -> None:
        """Write FILE.crt and FILE.key for `user` (the common name) in `group` (the organisation).

        With `names`, DNS names and IP addresses, it is a server's certificate; without, a client's.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group)] if group else []
        subject = x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, user)])
        above = x509.load_pem_x509_certificate((self.folder / f"{self.name}.crt").read_bytes())
        purpose = ExtendedKeyUsageOID.SERVER_AUTH if names else ExtendedKeyUsageOID.CLIENT_AUTH
        signer = serialization.load_pem_private_key((self.folder / f"{self.name}.key").read_bytes(), password=None)
        assert isinstance(signer, ec.EllipticCurvePrivateKey)
        builder = (
            _builder(subject, above.subject, key.public_key(), signer.public_key())
            .add_extension(_usage(authority=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName([_name(n) for n in names]), critical=False)
        _write(self.folder, file, key, builder.sign(signer, hashes.SHA256()))


def create(folder: Path) -> None:
    """Write everything that the control plane and the users of a new cluster need into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    authority, front = Authority.create(folder, "ca"), Authority.create(folder, "front-proxy-ca")
    service = "kubernetes.default.svc"
    names = ("localhost", "kubernetes", "kubernetes.default", service, f"{service}.cluster.local")
    addresses = ("127.0.0.1", CONTROL_PLANE_IP, KUBERNETES_SERVICE_IP)
    authority.issue("apiserver", "kube-apiserver", names=names + addresses)
    authority.issue("apiserver-kubelet-client", "kube-apiserver-kubelet-client", "system:masters")
    front.issue("front-proxy-client", "front-proxy-client")
    authority.issue("admin", "kubernetes-admin", "system:masters")
    for file, user in (
        ("controller-manager", "system:kube-controller-manager"),
        ("scheduler", "system:kube-scheduler"),
        ("proxy", "system:kube-proxy"),
        ("firewall", "steelyard:firewall"),
        ("dns", "steelyard:dns"),
    ):
        authority.issue(file, user)
    tokens = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    _write_key(folder / "sa.key", tokens)
    (folder / "sa.pub").write_bytes(
        tokens.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )


def create_node(folder: Path, node: Node) -> None:
    """Write the certificates with which the kubelet of `node` calls (NODE) and serves (NODE-serving)."""
    authority, user, group = Authority(folder, "ca"), f"system:node:{node.name}", "system:nodes"
    authority.issue(node.name, user, group)
    authority.issue(f"{node.name}-serving", user, group, names=(node.name, node.ip, "127.0.0.1"))


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, issuer_key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    """Begin a certificate; the key identifiers are what strict verifiers (Python from 3.13 on) ask for."""
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + VALID)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key), critical=False)
    )


def _usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=authority,
        crl_sign=authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _write(folder: Path, file: str, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
    _write_key(folder / f"{file}.key", key)
    (folder / f"{file}.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> None:
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
    )
    path.chmod(0o600)
