"""A guest book: a page that lists entries, and a form that adds one."""
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs

BOOK = Path("/workspace/book.txt")


class Page(BaseHTTPRequestHandler):
    def do_GET(self):
        entries = BOOK.read_text().splitlines() if BOOK.exists() else []
        listed = "".join(f"<li>{escape(entry)}</li>" for entry in entries)
        page = f"<h1>Guest book</h1><ul>{listed}</ul><form method=post><input name=entry><button>Add</button></form>\n"
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.end_headers()
        self.wfile.write(page.encode())

    def do_POST(self):
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        with BOOK.open("a") as book:
            print(form["entry"][0], file=book)
        self.send_response(303)
        self.send_header("Location", "/")
        self.end_headers()


ThreadingHTTPServer(("127.0.0.1", 8000), Page).serve_forever()
