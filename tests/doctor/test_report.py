"""What a report contains, and what it does not."""

from __future__ import annotations

import base64
import json
import random
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.doctor.patients import event, healthy, pod, windows_node

from transom.doctor import redact
from transom.doctor.examine import examine
from transom.doctor.report import CollectedReport, report_files
from transom.doctor.snapshot import ClusterSnapshot

WORD = "hunter2hunter2"
TOKEN = "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJrdWJlcm5ldGVzIn0.c2lnbmF0dXJl"
KEY = f"-----BEGIN RSA PRIVATE KEY-----\n{WORD}\n-----END RSA PRIVATE KEY-----"


def report(patient: ClusterSnapshot, **more: object) -> dict[str, str]:
    collected = CollectedReport(
        "bug.tar.gz", {"transom": "0.1.0", "kubectl": "v1.20.15"}, doctor="all is well", **more
    )  # type: ignore[arg-type]
    return {
        name: data.decode()
        for name, data in report_files(patient, examine(patient), collected).items()
    }


@pytest.mark.windows("W-DBG-05", "W-DBG-06")
@pytest.mark.windows("REP-01", "REP-02", "REP-03", "REP-04", "REP-05", "REP-06", "REP-07", "REP-08")
def test_the_text_asks_for_what_a_report_needs() -> None:
    found = report(
        healthy(inside=windows_node()),
        logs={"windows-1": {"kubelet.log": "I1116"}},
        hns={"windows-1": {}},
    )
    text = found["report.md"]
    for part in (
        "https://github.com/kubernetes/kubernetes/issues/new",
        "for SIG Windows",  # where
        "Search the existing issues",
        "comment there with what you have seen, and add your logs",
        "#sig-windows on the Slack",
        "## Steps to reproduce\n\n1.\n2.\n3.\n",
        "- kubectl: v1.20.15",
        "- API server: v1.20.15",
        "- Cloud provider: none",
        "- Network: l2bridge by flannel",
        "| windows-1 | windows | 10.0.17763.1697 | docker://",
        "all is well",
        "- nodes/windows-1/kubelet.log",
        "simulated by transom",
    ):
        assert part in text, part
    assert text.splitlines()[-1] == "/sig windows"
    assert json.loads(found["version.json"])["serverVersion"]["gitVersion"] == "v1.20.15"
    assert json.loads(found["environment.json"])["inside"][0]["mode"] == "l2bridge"
    assert (
        found["nodes/windows-1/kubelet.log"] == "I1116"
        and found["nodes/windows-1/hns.json"] == "{}\n"
    )
    assert "simulated by transom" not in report(healthy())["report.md"]


def test_events_of_a_node_and_its_kubelet_are_listed_in_order() -> None:
    found = report(
        healthy(
            pods=[pod("a")],
            events=[
                event("a", "BackOff", "second", ago=5, source={"host": "windows-1"}, count=3),
                event("windows-1", "Rebooted", "first\nline", kind="Node", ago=9),
            ],
        )
    )
    assert [line.split(" ", 2)[2] for line in found["nodes/windows-1/events.txt"].splitlines()] == [
        "Rebooted node/windows-1: first line",
        "BackOff pod/default/a (x3): second",
    ]
    assert "nodes/linux-1/events.txt" not in found


HEX = "0123456789abcdef" * 2


@pytest.mark.parametrize(
    ("before", "secret", "after"),
    [
        # by the name of a variable, as a pair
        ("- name: DB_PASSWORD\n  value: ", WORD, "\n"),
        ("- name: DB_PASSWORD\n  value: '", WORD, "'\n"),
        ('{"name":"DB_PASSWORD","value":"', WORD, '"}'),
        ('{"value":"', WORD, '","name":"DB_PASSWORD"}'),
        ("EnvVar{Name:DB_PASSWORD,Value:", WORD, ",ValueFrom:nil,}"),
        ('<add key="ApiKey" value="', WORD, '"/>'),
        ('Content-Disposition: form-data; name="password"\r\n\r\n', WORD, "\r\n"),
        ("<AdministratorPassword>\n <Value>", WORD, "</Value>"),
        ("SECRET_KEY_BASE=", WORD, ""),
        ("DD_APP_KEY: ", HEX, ""),
        ("certificateKey: ", HEX, ""),
        ("Ocp-Apim-Subscription-Key: ", HEX, ""),
        ("Kennwort: ", WORD, ""),
        ("JSESSIONID=", WORD, ""),
        ("AZURE_DEVOPS_EXT_PAT=", WORD, ""),
        ("password for me is ", WORD, ""),
        ('password "', WORD, '"'),
        ("seed phrase: ", "abandon ability able", ""),
        ("kind: Secret\ndata: {x: ", WORD, "}"),
        # by form
        ("GOCSPX-", WORD, "abcdefgh"),
        ("NRAK-", WORD, "abcdefgh"),
        ("glrt-", WORD, "abcdefgh"),
        ("key-", HEX, ""),
        ("", HEX, "-us12"),
        ("dapi", HEX, ""),
        ("/bot", f"123456789:AA{WORD * 4}"[:45], ""),
        ("", f"abc8Q~{WORD * 4}"[:40], ""),
        ("https://s3/x?X-Amz-Signature=", HEX, ""),
        ("https://x/y?key=", f"{WORD}abcdefgh", ""),
        ("https://x/IncomingWebhook/", HEX, f"/{WORD}"),
        (f"me:500:{HEX}:", HEX, ":::"),
        ("db.example:5432:x:me:", WORD, ""),
        ("Authorization: Digest username='x', response='", HEX, "'"),
        ('{"kty":"oct","k":"', f"{WORD}abcdefgh", '"}'),
        # arguments of programs, statements
        ("net use \\\\srv\\share /user:d\\me ", WORD, ""),
        ("net use X: \\\\srv\\share ", WORD, " /user:d\\me"),
        ("net user me ", WORD, " /add"),
        ("ConvertTo-SecureString -String '", WORD, "' -AsPlainText -Force"),
        ("ConvertTo-SecureString ", WORD, " -AsPlainText -Force"),
        ("schtasks /create /ru x /rp ", WORD, ""),
        ("psexec -u x -p ", WORD, " cmd"),
        ("winrs -r:x -u:y -p:", WORD, " cmd"),
        ("docker login -u x -p ", WORD, " r"),
        ("redis-cli -h x -a ", WORD, " ping"),
        ("sqlcmd -S x -U sa -P ", WORD, ""),
        ("ldapsearch -D cn=x -w ", WORD, ""),
        ("CREATE USER x IDENTIFIED BY '", WORD, "'"),
        ("ALTER USER x WITH PASSWORD '", WORD, "'"),
        ("SET PASSWORD FOR x = '", WORD, "'"),
    ],
)
def test_shapes_that_are_taken_out_of_texts(before: str, secret: str, after: str) -> None:
    shown = redact.redact_text(f"first {before}{secret}{after} last")
    assert secret not in shown and redact.MASK in shown
    assert shown.startswith("first ")
    assert redact.redact_text(shown) == shown


@pytest.mark.parametrize(
    "text",
    [
        f"Authorization: Bearer {WORD}",
        f"token: {TOKEN}",
        f"got {TOKEN} from it",
        KEY,
        KEY.partition("-----END")[0],
        f"--password={WORD}",
        f"--db-password {WORD} --v=4",
        f'"client-key-data": "{WORD}"',
        f"HTTP_PROXY=http://me:{WORD}@proxy:80/",
        f"api_key='{WORD}'",
        f"connecting with password={WORD};user=me",
        f"MY_SECRET: {WORD}",
        f"Basic {WORD}=",
        f"join --token abcdef.{WORD}ab",
        f"Authorization: ApiKey {WORD}",
        f"Cookie: session={WORD}",
        f"me:{WORD}@tcp(127.0.0.1:3306)/db",
        f"jdbc:oracle:thin:scott/{WORD}@//db:1521/x",
        f"curl -u admin:{WORD} https://x",
        f"sshpass -p {WORD} ssh x",
        f"mysql -uroot -p{WORD} db",
        f"PGPASS={WORD}",
        f"DB_PW={WORD}",
        f"secretKey: {WORD}",
        f"the password is {WORD}",
        f"password => {WORD}",
        f"<password>{WORD}</password>",
        f'password = """{WORD}"""',
        f"New-Thing -Password {WORD}",
        f"machine x login me password {WORD}",
        f"me:$apr1$abcdefgh${WORD}{WORD}",
        f"sk_test_{WORD}{WORD}",
        TOKEN.replace(".", "%2E"),
        TOKEN.replace(".", ".\n"),
        f"-----BEGIN PRIVATE KEY-----\n{WORD}".encode().hex(),
        base64.b64encode(f"me:{WORD}".encode()).decode(),
    ],
)
def test_what_is_taken_out_of_texts(text: str) -> None:
    shown = redact.redact_text(f"before\n{text}\nafter")
    assert WORD not in shown and TOKEN not in shown and text not in shown
    assert shown.startswith("before\n") and redact.MASK in shown


@pytest.mark.parametrize(
    "text",
    [
        (
            'MountVolume.SetUp failed for volume "default-token-x8k2p" : secret '
            '"default-token-x8k2p" not found'
        ),
        "https://172.20.0.1:6443/api/v1/nodes",
        "I1116 10:00:00.000000 4004 server.go:416] Version: v1.20.15",
        "automountServiceAccountToken of the pod",
    ],
)
def test_what_stays(text: str) -> None:
    assert redact.redact_text(text) == text


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=9),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["name", "value", "kind", "data", "token", "spec"]),
                inner,
                max_size=4,
            )
        ),
    )
)
def test_redacting_twice_changes_nothing_more_and_stays_json(found: object) -> None:
    once = redact.redact_value(found)
    assert redact.redact_value(once) == once
    json.dumps(once)


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


LOWER, ALNUM = (
    "abcdefghijklmnopqrstuvwxyz0123456789",
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789",
)
PART = st.text(ALNUM, min_size=16, max_size=60)
JWT = st.builds(
    lambda a, b, c: f"{b64(json.dumps({'alg': a})).rstrip('=')}.{b}.{c}", PART, PART, PART
)
PEM = st.builds(
    "-----BEGIN {0}PRIVATE KEY-----\n{1}\n{2}\n-----END {0}PRIVATE KEY-----\n".format,
    st.sampled_from(["", "RSA ", "EC ", "OPENSSH ", "ENCRYPTED "]),
    PART,
    PART,
)
BOOTSTRAP = st.builds(
    "{}.{}".format, st.text(LOWER, min_size=6, max_size=6), st.text(LOWER, min_size=16, max_size=16)
)
AWS = st.builds(
    "AKIA{}".format, st.text("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", min_size=16, max_size=16)
)
AWS_SECRET = st.builds(
    lambda seed: "".join(random.Random(seed).choices(ALNUM + "/+", k=40)), st.integers()
).filter(lambda found: sum(map(str.isdigit, found)) > 1)
URL = st.builds(
    lambda user, word: f"postgres://{user}:{word}@db:5432/x", st.text(LOWER, max_size=8), PART
)
GITHUB = st.builds("ghp_{}".format, st.text(ALNUM, min_size=36, max_size=36))
SHAPES = {
    "jwt": JWT,
    "pem": PEM,
    "bootstrap": BOOTSTRAP,
    "aws": AWS,
    "aws secret": AWS_SECRET,
    "url": URL,
    "github": GITHUB,
}
AROUND = st.text("abc xyz:,.()[]\n\t", max_size=20)


def leaks(secret: str, shown: str) -> bool:
    """Whether a good part of it is there, as it was or encoded."""
    core = (
        secret.replace("postgres://", "")
        .replace("@db:5432/x", "")
        .replace("PRIVATE KEY", "")
        .replace("-----", "")
    )
    pieces = [piece for piece in re.split(r"[\s:.]+", core) if len(piece) >= 10]
    return any(piece in shown for piece in pieces)


@pytest.mark.parametrize("shape", SHAPES)
@given(data=st.data())
def test_secrets_are_known_by_their_shape(shape: str, data: st.DataObject) -> None:
    """Whatever they are called: in logs, events, arguments, variables, annotations; as they are, in
    JSON, in base64.
    """
    secret, before, after = data.draw(SHAPES[shape]), data.draw(AROUND), data.draw(AROUND)
    plain = f"{before} {secret} {after}"
    assert not leaks(secret, redact.redact_text(plain))
    assert not leaks(secret, redact.redact_text(f"x={secret}"))
    assert not leaks(secret, redact.redact_text(json.dumps({"x": secret})))
    assert not leaks(secret, redact.redact_text(json.dumps(json.dumps({"x": [secret]}))))
    assert not leaks(
        secret,
        json.dumps(
            redact.redact_value({"args": ["-c", secret], "env": [{"name": "X", "value": plain}]})
        ),
    )
    assert not leaks(
        secret,
        json.dumps(
            redact.redact_value({"annotations": {"note": json.dumps({"x": json.dumps([secret])})}})
        ),
    )
    for encoded in (
        b64(secret),
        b64(b64(secret)),
        b64(json.dumps({"auths": {"r": {"x": secret}}})),
    ):
        for shown in (
            redact.redact_text(f"got {encoded}, {after}"),
            redact.redact_text(f"x={encoded}"),
            redact.redact_text(f"/path/{encoded}"),
            str(redact.redact_value({"x": encoded})),
        ):
            assert encoded not in shown and encoded[:-8] not in shown, shown


def test_hexadecimal_secrets_are_known_by_the_word_before_them() -> None:
    number = "9f86d081884c7d659a2feaa0c55ad015"
    for word in ("token", "Secret", "key", "password"):
        assert redact.redact_text(f"failed with {word} {number}") == (
            f"failed with {word} {redact.MASK}"
        )
    for plain in (f"image sha256:{number}{number}", f"uid {number}"):
        assert redact.redact_text(plain) == plain


# Words of the texts below; Hypothesis tries constants that it finds in the source.
OWN_WORDS = (
    "registry",
    "metadata",
    "stringData",
    "annotations",
    "SecretList",
    "password",
    "accountKey",
)


@given(
    word=st.text(ALNUM + "!#$%*+.<>?^_|~", min_size=8, max_size=30).filter(
        lambda word: "redacted" not in word and word not in OWN_WORDS
    ),
    name=st.sampled_from(
        ["password", "DB_PASSWORD", "token", "api_key", "apiKey", "client-key-data", "accountKey"]
    ),
)
def test_secrets_are_known_by_their_names(word: str, name: str) -> None:
    secret = {
        "kind": "Secret",
        "metadata": {"name": "s"},
        "data": {"x": b64(word)},
        "stringData": {"y": word},
    }
    texts = (
        f"{name}={word}",
        f"{name}: {word}",
        f'"{name}": "{word}"',
        json.dumps({name: word}),
        json.dumps(json.dumps({name: word})),
        f"--{name.replace('_', '-')} {word}",
        f"  {name}: two words {word}",
        f"{name}: |\n  first\n  {word}\nnext: 1",
        json.dumps({"auths": {"registry": {"auth": word, "email": "x"}}}),
        json.dumps(json.dumps({"auth": word})),
        json.dumps(secret),
        json.dumps(json.dumps(secret)),
        f"applied {json.dumps(secret)} at once",
        f"kind: Secret\ndata:\n  x: {b64(word)}\n  z: {word}\nmetadata:\n  name: s\n",
    )
    for text in texts:
        shown = redact.redact_text(f"before\n{text}")
        assert word not in shown and b64(word) not in shown, (text, shown)
    objects = (
        {name: word},
        {"env": [{"name": name, "value": word}]},
        {"args": [f"--{name}", word]},
        {"args": [f"--{name}={word}"]},
        {"note": json.dumps(secret)},
        {"kind": "SecretList", "items": [{"data": {"x": word}}]},
        {"note": json.dumps([{name: word}])},
        {"metadata": {"annotations": {"other/last-applied": json.dumps(secret)}}},
    )
    for found in objects:
        shown = json.dumps(redact.redact_value(found), ensure_ascii=False)
        assert word not in shown and b64(word) not in shown, (found, shown)


@given(st.text(max_size=200))
def test_redacting_a_text_twice_changes_nothing_more(text: str) -> None:
    once = redact.redact_text(text)
    assert redact.redact_text(once) == once


@pytest.mark.parametrize(
    "piece",
    [
        "a",
        "eyJ-",
        "-",
        "--",
        "password=",
        'password="',
        "://a:",
        "://a:b://",
        "-----BEGIN PRIVATE KEY",
        '"data":{',
        "Secret data:\n ",
        "eyJhbGciOiJI.",
        "token: |\n ",
        "YWJj",
        "A1b/",
        '\\"',
        "Basic ",
    ],
)
def test_hostile_logs_take_no_time(piece: str) -> None:
    begin = time.process_time()
    redact.redact_text("Secret " + piece * (100_000 // len(piece)))
    assert time.process_time() - begin < 3  # linear: about 0.3 s on an idle core


@pytest.mark.parametrize(
    "text",
    [
        "sha256:" + "0123456789abcdef" * 4,
        "docker://" + "0123456789abcdef" * 4,
        "6f1c0d7e-8e0f-4c5c-9f7e-1d2f3a4b5c6d",
        "6F1C0D7E-8E0F-4C5C-9F7E-1D2F3A4B5C6D",
        "/var/lib/kubelet/pods/6f1c0d7e-8e0f-4c5c-9f7e-1d2f3a4b5c6d/volumes/kubernetes.io~empty-dir",
        "failed to get the pod: dial tcp 10.0.0.1:443: i/o timeout",
        "mcr.microsoft.com/windows/servercore:ltsc2019",
        "kubectl --context user@cluster get pods",
        "mailto:someone@example.com",
    ],
)
def test_names_hashes_and_messages_stay(text: str) -> None:
    assert redact.redact_text(text) == text


def test_nothing_secret_is_in_the_archive() -> None:
    secret = pod("a", volumes=[{"name": "v", "secret": {"secretName": "certificate"}}])
    secret["metadata"]["annotations"] = {
        "kubectl.kubernetes.io/last-applied-configuration": WORD,
        "note": f"password={WORD}",
    }
    secret["spec"]["containers"][0] |= {
        "env": [
            {"name": "DB_PASSWORD", "value": WORD},
            {"name": "URL", "value": f"http://me:{WORD}@db/"},
            {"name": "MODE", "value": "fast"},
        ],
        "args": [f"--token={WORD}"],
    }
    hidden = {"kind": "Secret", "data": {"x": WORD}, "metadata": {"name": "s"}}
    found = report(
        healthy(
            pods=[secret],
            events=[event("a", "Failed", f"Bearer {TOKEN}")],
            replicasets=[hidden],
            inside=windows_node(
                variables={"HTTP_PROXY": f"http://me:{WORD}@proxy/", "API_TOKEN": WORD}
            ),
        ),
        logs={"windows-1": {"kubelet.log": KEY}},
        cluster_log=f"token={WORD}",
        hns={"windows-1": {"password": WORD}},
    )
    for name, text in found.items():
        assert WORD not in text and TOKEN not in text, name
    assert (
        '"fast"' in found["objects/pods.json"]
        and '"secretName": "certificate"' in found["objects/pods.json"]
    )
