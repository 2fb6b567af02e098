"""Amounts of bytes, read and written."""

import pytest

from fedcef.core.amounts import as_bytes, byte_unit, format_bytes


@pytest.mark.parametrize(
    ("text", "count"), [("300MB", 300_000_000), ("1.5 GB", 1_500_000_000), (2e9, 2 * 10**9), ("7b", 7), (0, 0)]
)
def test_read(text, count):
    assert as_bytes(text) == count


@pytest.mark.parametrize("text", ["", "much", "3 MiB", True, None, "1e999"])
def test_no_amount(text):
    with pytest.raises(ValueError, match="a number of bytes such as 300MB"):
        as_bytes(text)


def test_written():
    assert [format_bytes(n) for n in (0, 999, 1000, 12_345, 999_999, 1.5e9, 2e15)] == [
        "0 B", "999 B", "1.00 kB", "12.3 kB", "1000 kB", "1.50 GB", "2000 TB",
    ]  # fmt: skip


def test_a_gigabyte_is_a_thousand_million_bytes():
    assert byte_unit(1e9) == (1e9, "GB")
    assert byte_unit(999e6) == (1e6, "MB")
    assert byte_unit(0.0) == (1.0, "B")
