"""Typed columns of entries over Arrow schemas: their layout, conversions, and batches."""
