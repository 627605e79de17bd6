"""Excel workbooks: openpyxl, as it is, and the few lines that are always the same.

from skills.documents.lib.xlsx import openpyxl, load_workbook, Workbook
"""
import re

from . import _packages
from ._package import DAMAGED as _DAMAGED, DocumentError, table_markdown, unzipped

openpyxl = _packages.find("openpyxl")
from openpyxl import Workbook
from openpyxl.cell import Cell
from openpyxl.styles import Alignment, Border, Font, PatternFill, Side
from openpyxl.utils import column_index_from_string, get_column_letter
from openpyxl.chart import BarChart, LineChart, PieChart, Reference, ScatterChart, Series
import openpyxl.drawing.image as _drawing
from xml.etree.ElementTree import ParseError as _ParseError

Image = _drawing.Image


def load_workbook(source, **options):
    """As openpyxl's, for a path or an open file; data_only=True gives the values that
    Excel computed last in place of formulas."""
    unzipped(source).close()  # is one, and not too large
    if hasattr(source, "seek"):
        source.seek(0)
    try:
        return openpyxl.load_workbook(source, **options)
    except (KeyError, _ParseError, *_DAMAGED) as error:
        raise DocumentError(f"this is no .xlsx workbook: {error}") from error


def read(source, sheet=None, header=True):
    """The rows of a sheet (the first one): dicts by the names in the first row, or, with
    header=False, lists. Formulas give what Excel computed last."""
    book = load_workbook(source, read_only=True, data_only=True)
    try:
        rows = [list(row) for row in (book[sheet] if sheet else book.worksheets[0]).iter_rows(values_only=True)]
    finally:
        book.close()
    while rows and all(v is None for v in rows[-1]):
        rows.pop()
    if not header:
        return rows
    if not rows:
        return []
    names = [str(n) if n is not None else get_column_letter(k) for k, n in enumerate(rows[0], 1)]
    return [dict(zip(names, row)) for row in rows[1:]]


def write(target, sheets, widths=True):
    """Writes rows (dicts, or lists of which the first is the header), or a dict of the names
    of sheets to rows, with a bold header that stays in view. A text that begins with = stays
    a text: rows may be anybody's. Formulas are written with openpyxl."""
    if not isinstance(sheets, dict):
        sheets = {"Sheet1": sheets}
    book = Workbook()
    book.remove(book.active)
    for name, rows in sheets.items():
        rows = list(rows)
        if rows and isinstance(rows[0], dict):
            names = list(dict.fromkeys(n for row in rows for n in row))
            rows = [names] + [[row.get(n) for n in names] for row in rows]
        sheet = book.create_sheet(re.sub(r"[][*?:/\\]", "_", str(name))[:31] or "Sheet1")
        for row in rows:
            sheet.append([_cell(sheet, v) for v in row])
        if not rows:
            continue
        for cell in sheet[1]:
            cell.font = Font(bold=True)
        sheet.freeze_panes = "A2"
        if widths:
            for k in range(1, sheet.max_column + 1):
                longest = max((len(str(row[k - 1])) for row in rows if k <= len(row) and row[k - 1] is not None), default=0)
                sheet.column_dimensions[get_column_letter(k)].width = min(60, max(8, longest + 2))
    book.save(target)


def _cell(sheet, value):
    """What stands for a value in a row."""
    if value is not None and not isinstance(value, _VALUES):
        value = str(value)
    if not isinstance(value, str) or value[:1] != "=":
        return value
    cell = Cell(sheet, value=value)
    cell.data_type = "s"  # not a formula
    return cell


def to_markdown(source, rows=1000):
    """Every sheet as a Markdown table, of so many rows at most."""
    book = load_workbook(source, read_only=True, data_only=True)
    out = []
    try:
        for sheet in book.worksheets:
            found = []
            for row in sheet.iter_rows(values_only=True):
                if any(v is not None for v in row):
                    found.append(["" if v is None else v for v in row])
                if len(found) > rows:
                    break
            more = "\n\n… and more rows" if len(found) > rows else ""
            out.append(f"## {sheet.title}\n\n{table_markdown(found[:rows])}{more}")
    finally:
        book.close()
    return "\n\n".join(out) + "\n"


import datetime as _datetime
import decimal as _decimal

_VALUES = (str, int, float, bool, _decimal.Decimal, _datetime.date, _datetime.time, _datetime.timedelta)
