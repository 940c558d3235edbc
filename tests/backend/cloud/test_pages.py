from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.cloud.messages import message
from backend.cloud.pages import ItemCache, MalformedPage, split_page


@given(st.lists(st.text(max_size=300), max_size=20), st.text(max_size=40), st.lists(st.text(max_size=5), max_size=3))
def test_a_page_is_split_as_protobuf_would(names: list[str], token: str, unreachable: list[str]) -> None:
    kind = message("Node")
    response = message("ListNodesResponse")(
        nodes=[kind(name=name, id=7) for name in names], next_page_token=token, unreachable=unreachable
    )
    items, found = split_page(response.SerializeToString())
    assert [kind.FromString(data).name for data in items] == names
    assert found == token


def test_fields_of_any_wire_type_are_passed_over() -> None:
    data = b"\x20\x96\x01" + b"\x29" + b"x" * 8 + b"\x35" + b"y" * 4 + b"\x0a\x01A" + b"\x3a\x02zz"
    assert split_page(data) == ([b"A"], "")


@given(st.binary(max_size=60))
def test_rubbish_is_an_error_or_items_but_never_a_hang(data: bytes) -> None:
    try:
        items, _ = split_page(data)
    except MalformedPage:
        return
    assert sum(map(len, items)) <= len(data)


@pytest.mark.parametrize("data", [b"\x0a", b"\x0a\x05ab", b"\x0b", b"\x0a\xff"])
def test_a_torn_page_is_an_error(data: bytes) -> None:
    with pytest.raises(MalformedPage):
        split_page(data)


async def test_only_what_changed_is_converted() -> None:
    converted: list[bytes] = []

    def convert(data: bytes) -> Any:
        converted.append(data)
        return [data]

    cache = ItemCache(convert)
    first = await cache.take([[b"a", b"b"], [b"c"]])
    second = await cache.take([[b"a", b"x"], [b"c"]])
    assert converted == [b"a", b"b", b"c", b"x"]
    assert second[0] is first[0]
    assert second[2] is first[2]
    await cache.take([[b"b"]])
    assert converted[-1] == b"b"
