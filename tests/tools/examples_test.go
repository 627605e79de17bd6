package tools

import (
	"testing"
)

// shops are the servers of the code-execution-with-MCP examples.
func shops(t *testing.T, m *model) (drive, sales *testServer) {
	drive, sales = newTestServer(t).drive(), newTestServer(t).sales().odd()
	m.bind(t, "google-drive", drive.url)
	m.bind(t, "salesforce", sales.url)
	return drive, sales
}

// TestTheExamplesOfCodeExecutionWithMCP are those of the pattern's description: a call,
// what one server gives handed to another, a large result filtered, loops and retries,
// state in the workspace, and code that is kept as a skill; in three languages.
func TestTheExamplesOfCodeExecutionWithMCP(t *testing.T) {
	inEach(t, everywhere, func(*testing.T) options { return options{} }, func(t *testing.T, m *model) {
		_, sales := shops(t, m)
		t.Run("tools are found as files", func(t *testing.T) { exploring(t, m) })
		t.Run("Python", func(t *testing.T) { examplesInPython(t, m) })
		t.Run("TypeScript", func(t *testing.T) { examplesInTypeScript(t, m, "typescript") })
		t.Run("JavaScript", func(t *testing.T) { examplesInTypeScript(t, m, "javascript") })
		if note := sales.notes["00Q5f000001abcXYZ"]; note != `{"Notes":"Discussed Q4 goals in abc123"}` {
			t.Errorf("what was handed on is %s", note)
		}
		t.Run("a skill", func(t *testing.T) { skills(t, m) })
	})
}

func exploring(t *testing.T, m *model) {
	m.prints(t, "python", `
import os
print(sorted(n for n in os.listdir("/servers") if n[0] != "."))
print(sorted(n for n in os.listdir("/servers/google_drive") if n.startswith("get")))
print("documentId" in open("/servers/google_drive/getDocument.ts").read())
import servers
print([hit["tool"] for hit in servers.search("retrieve document", limit=1)])
`, "['google_drive', 'salesforce']\n['getDocument.py', 'getDocument.ts', 'getSheet.py', 'getSheet.ts']\nTrue\n['getDocument']\n")
	m.prints(t, "javascript", `
import { readdirSync, readFileSync } from "fs";
console.log(readdirSync("/servers/salesforce").includes("updateRecord.ts"));
console.log(readFileSync("/servers/salesforce/updateRecord.ts", "utf8").includes("SalesMeeting"));
`, "true\ntrue\n")
	if e := m.run(t, "python", `open("/servers/google_drive/getDocument.py", "a").write("import os")`); e.Success {
		t.Error("programs change the servers' files")
	}
}

func examplesInPython(t *testing.T, m *model) {
	m.prints(t, "python", `
from servers import google_drive as gdrive, salesforce

# A call, and what it gives handed on: the model reads none of it.
transcript = gdrive.getDocument(documentId="abc123")["content"]
salesforce.updateRecord(objectType="SalesMeeting", recordId="00Q5f000001abcXYZ", data={"Notes": transcript})

# A large result, filtered.
rows = gdrive.getSheet(sheetId="abc123")["rows"]
pending = [row for row in rows if row["Status"] == "pending"]
print(f"Found {len(pending)} pending orders of {len(rows)}")
print([row["id"] for row in pending[:3]], sum(row["amount"] for row in pending))

# Control flow.
from servers import ToolError
for attempt in range(1, 6):
    try:
        print(attempt, salesforce.flaky())
        break
    except ToolError as e:
        print(attempt, e)
`, "Found 500 pending orders of 2000\n[0, 4, 8] 23700\n1 not yet, this was time 1\n2 not yet, this was time 2\n3 done at time 3\n")
	m.prints(t, "python", `
leads = salesforce.query(query="SELECT Id, Email FROM Lead", limit=1000)["records"]
open("leads.csv", "w").write("\n".join(f"{l['Id']},{l['Email']}" for l in leads))
`, "")
	m.prints(t, "python", `print(open("leads.csv").read().count("\n"), len(leads))`, "99 100\n") // files and variables are there later
}

func examplesInTypeScript(t *testing.T, m *model, language string) {
	typed := ""
	if language == "typescript" {
		typed = ": any"
	}
	m.prints(t, language, `
import * as gdrive from "servers/google_drive";
import * as salesforce from "servers/salesforce";
import { ToolError } from "servers";

const transcript = (await gdrive.getDocument({ documentId: "abc123" })).content;
await salesforce.updateRecord({ objectType: "SalesMeeting", recordId: "00Q5f000001abcXYZ", data: { Notes: transcript } });

const { rows } = await gdrive.getSheet({ sheetId: "abc123" });
const pending = rows.filter((row`+typed+`) => row["Status"] === "pending");
console.log("Found " + pending.length + " pending orders of " + rows.length);
console.log(pending.slice(0, 3).map((row`+typed+`) => row.id).join());

let found = false;
for (let attempt = 1; !found; attempt++) {
  try {
    console.log((await salesforce.flaky()).slice(0, 4));
    found = true;
  } catch (e`+typed+`) {
    if (!(e instanceof ToolError)) throw e;
    await new Promise((done) => setTimeout(done, 10));
  }
}
`, "Found 500 pending orders of 2000\n0,4,8\ndone\n")
	m.prints(t, language, `
import { writeFileSync, readFileSync } from "fs";
import { query } from "servers/salesforce";
const { records } = await query({ query: "SELECT Id, Email FROM Lead", limit: 1000 });
writeFileSync("leads.csv", records.map((l`+typed+`) => l.Id + "," + l.Email).join("\n"));
console.log(readFileSync("leads.csv", "utf8").split("\n").length);
`, "100\n")
}

// skills are functions that were kept, and are used in another run.
func skills(t *testing.T, m *model) {
	m.prints(t, "typescript", `
import { mkdirSync, writeFileSync } from "fs";
mkdirSync("skills", { recursive: true });
writeFileSync("skills/save-sheet-as-csv.mjs", [
  'import * as gdrive from "servers/google_drive";',
  'import { writeFileSync } from "fs";',
  'export async function saveSheetAsCsv(sheetId) {',
  '  const { rows } = await gdrive.getSheet({ sheetId });',
  '  writeFileSync("sheet-" + sheetId + ".csv", rows.map((row) => Object.values(row).join()).join("\\n"));',
  '  return "sheet-" + sheetId + ".csv";',
  '}',
].join("\n"));
`, "")
	m.prints(t, "typescript", `
import { saveSheetAsCsv } from "./skills/save-sheet-as-csv.mjs";
console.log(await saveSheetAsCsv("abc123"));
`, "sheet-abc123.csv\n")
	m.prints(t, "python", `
import os
os.makedirs("skills", exist_ok=True)
open("skills/sheets.py", "w").write("""
from servers.google_drive import getSheet
def rows_of(sheet): return len(getSheet(sheetId=sheet)["rows"])
""")
`, "")
	m.prints(t, "python", "import sys; sys.path.insert(0, 'skills')\nimport sheets\nprint(sheets.rows_of('abc123'), open('sheet-abc123.csv').read().count('\\n'))", "2000 1999\n")
}
