"""Lets the tests of the parts, in folders below, use the kits that lie here."""
