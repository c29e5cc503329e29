"""Parsers: bytes of one media type to text with offsets that stay."""
