import pytest

from transom.machinery.defaults.images import default_pull_policy, image_tag

SHA = "sha256:" + "a" * 64


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ("nginx", "latest"),
        ("nginx:latest", "latest"),
        ("nginx:1.2", "1.2"),
        ("host:5000/nginx", "latest"),
        ("host:5000/a/b:v1", "v1"),
        (f"nginx@{SHA}", ""),
        (f"nginx:latest@{SHA}", "latest"),
        (f"a.b/c:v@{SHA}", "v"),
        ("localhost/x", "latest"),
        ("docker.io/library/nginx", "latest"),
        ("a__b.c-d---e/f", "latest"),
        # Malformed names have no tag at all.
        ("", ""),
        ("Nginx", ""),
        ("nginx:", ""),
        ("nginx@sha256:abc", ""),
        (f"nginx@md5:{'a' * 32}", ""),
        (f"nginx@sha256:{'A' * 64}", ""),
        ("a" * 64, ""),
        ("x/" + "b" * 260, ""),
        ("nginx latest", ""),
        ("-x", ""),
        ("nginx:latest\n", ""),
        ("Foo/bar", ""),
        ("FOO.io/bar", "latest"),
    ],
)
def test_tag(image: str, expected: str) -> None:
    assert image_tag(image) == expected


def test_pull_policy() -> None:
    images = ("nginx", "nginx:1", f"nginx@{SHA}", "Bad")
    assert [default_pull_policy(i) for i in images] == [
        "Always",
        "IfNotPresent",
        "IfNotPresent",
        "IfNotPresent",
    ]


def test_a_hostile_name_takes_no_time() -> None:
    assert image_tag("a" * 5000 + "!") == ""
