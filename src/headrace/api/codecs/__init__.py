"""Codecs: Python values to fields of an entry and back, and arguments of requests.

They are not built on msgspec 0.22. It encodes `Address(5)` although `street` is a str, NaN as `null`, and a
time in UTC with `Z`, where stored entries have `+00:00`. It rejects dicts with bool keys, enums that mix str
and int values, and pydantic models, which the codecs store.
"""
