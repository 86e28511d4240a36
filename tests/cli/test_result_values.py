"""The texts of a query's values."""

from decimal import Decimal

from headrace.cli.query.result_values import as_json, as_text


def test_decimals_are_printed_with_all_digits_and_no_exponent() -> None:
    values = [Decimal("0E-10"), Decimal("1E-7"), Decimal("12E3"), Decimal("-1.50")]
    texts = ["0.0000000000", "0.0000001", "12000", "-1.50"]
    assert [as_text(value) for value in values] == texts
    assert as_json({"a": values}) == {"a": texts}
