"""The texts of a query's values."""

from decimal import Decimal

from headrace.cli.query.result_values import as_text, to_json_value


def test_decimals_are_printed_with_all_digits_and_no_exponent() -> None:
    values = [Decimal("0E-10"), Decimal("1E-7"), Decimal("12E3"), Decimal("-1.50")]
    texts = ["0.0000000000", "0.0000001", "12000", "-1.50"]
    assert [as_text(value) for value in values] == texts
    assert to_json_value({"a": values}) == {"a": texts}
