"""HTML of the console is escaped by default."""

from __future__ import annotations

import pytest

from transom.web.markup import document, fragment, tag, with_code


def test_children_and_attributes_are_escaped() -> None:
    made = tag("p", "<script>alert(1)</script>", title='"><img src=x onerror=alert(1)>')
    assert made.text == (
        '<p title="&quot;&gt;&lt;img src=x onerror=alert(1)&gt;">'
        "&lt;script&gt;alert(1)&lt;/script&gt;</p>"
    )


def test_markup_is_inserted_as_it_is() -> None:
    assert tag("p", tag("b", "&"), [tag("i", 1), None, "x"]).text == "<p><b>&amp;</b><i>1</i>x</p>"
    assert fragment("<", tag("br")).text == "&lt;<br>"
    assert document(tag("body")).text == '<!doctype html>\n<html lang="en"><body></body></html>'


def test_attribute_names_and_flags() -> None:
    made = tag("label", for_="x", class_="a", data_key="k", hidden=True, title=None, open=False)
    assert made.text == '<label for="x" class="a" data-key="k" hidden></label>'


@pytest.mark.parametrize(
    "address",
    [
        "javascript:alert(1)",
        "JaVaScRiPt:alert(1)",
        " javascript:alert(1)",
        "data:text/html,x",
        "//evil.example/",
        "/\\evil.example",
        "vbscript:x",
    ],
)
def test_addresses_cannot_run_scripts_or_leave(address: str) -> None:
    assert tag("a", "x", href=address).text == '<a href="#">x</a>'


@pytest.mark.parametrize("address", ["/cluster", "#top", "?a=b", "https://k8s.io/", "../x", ""])
def test_other_addresses_stay(address: str) -> None:
    assert tag("a", href=address).text == f'<a href="{address}"></a>'


def test_code_in_backticks_is_escaped() -> None:
    text = "use `a <b>` or <i>"
    assert with_code(text).text == "use <code>a &lt;b&gt;</code> or &lt;i&gt;"
