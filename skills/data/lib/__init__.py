"""Tables of CSV, JSON, XML and SQL, with Python's own library alone.

A Table is a list of dicts with methods that give new tables: read("a.csv").where(…).group(…).
"""
from ._json import flatten, get, json_lines, paths
from ._table import Table, number, query, read, table
from ._xml import XMLError, from_xml, read_xml, to_xml

__all__ = ["Table", "table", "read", "query", "number", "get", "paths", "flatten", "json_lines", "from_xml", "read_xml", "to_xml", "XMLError"]
