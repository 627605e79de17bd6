package network

import (
	"testing"
)

// fetchPrograms are programs that use fetch, by what they show of it.
var fetchPrograms = map[string]string{
	"answers": `
for (const base of [process.env.SECURE, process.env.PLAIN]) {
  let r = await fetch(base + "/json?q=1", { headers: { Accept: "application/json" } });
  assert(r instanceof Response && r.ok && r.status === 200 && r.statusText === "OK" && r.url === base + "/json?q=1" && !r.redirected);
  assert(r.headers.get("Content-Type") === "application/json" && !r.bodyUsed);
  const said = await r.json();
  assert(said.query === "q=1" && said.accept === "application/json" && said.agent === "paddock" && r.bodyUsed);
  await fails(() => r.text(), "TypeError", "already been read");
  r = await fetch(new URL(base + "/missing"));
  assert(!r.ok && r.status === 404 && await r.text() === "there is nothing\n");
  r = await fetch(base + "/large");
  assert((await r.arrayBuffer()).byteLength === 4 << 20);
  r = await fetch(base + "/path");
  const twice = r.clone();
  assert(await r.text() === "GET path" && new TextDecoder().decode(await twice.bytes()) === "GET path");
  const blob = await (await fetch(base + "/json")).blob();
  assert(blob.type === "application/json" && blob.size > 10);
  r = await fetch(base + "/path", { method: "HEAD" });
  assert(r.body === null && await r.text() === "" && r.headers.get("x-method") === "HEAD");
  assert((await fetch(base + "/cookies")).headers.getSetCookie().length === 2);
}
const all = await Promise.all(Array.from({ length: 20 }, async (_, n) => (await fetch(process.env.SECURE + "/p" + n)).text()));
assert(all.every((text, n) => text === "GET p" + n));
`,
	"requests": `
const base = process.env.SECURE, echo = async (init) => fetch(base + "/echo", { method: "POST", ...init });
let r = await echo({ body: JSON.stringify({ a: [1] }), headers: new Headers({ "content-type": "application/json" }) });
assert((await r.json()).a[0] === 1 && r.headers.get("content-type") === "application/json");
r = await echo({ body: "ä" });
assert(await r.text() === "ä" && r.headers.get("content-type") === "text/plain;charset=UTF-8");
r = await echo({ body: new URLSearchParams({ a: "1 2" }) });
assert(await r.text() === "a=1+2");
r = await echo({ body: new Uint8Array([1, 2, 255]) });
assert((await r.bytes()).join() === "1,2,255");
const form = new FormData();
form.append("name", "välue");
form.append("file", new File(["content"], "a.txt", { type: "text/x" }));
r = await echo({ body: form });
const back = await r.formData();
assert(back.get("name") === "välue" && back.get("file").name === "a.txt" && back.get("file").type === "text/x" && await back.get("file").text() === "content");
const count = async (body) => (await fetch(base + "/count", { method: "PUT", body, duplex: "half" })).text();
assert(await count(new Uint8Array(3 << 20)) === String(3 << 20));
assert(await count((async function* () { for (let n = 0; n < 10; n++) yield new Uint8Array(100_000); })()) === "1000000");
assert(await count(new ReadableStream({ start(c) { c.enqueue(new Uint8Array(10)); c.close(); } })) === "10");
const request = new Request(base + "/echo", { method: "POST", body: "x" });
assert(await (await fetch(request.clone())).text() === "x" && await (await fetch(request)).text() === "x" && request.bodyUsed);
await fails(() => fetch(request), "TypeError", "already been used");
await fails(() => fetch(base, { body: "x" }), "TypeError", "cannot have body");
await fails(() => fetch("/path"), "TypeError", "parse URL");
`,
	"bodies as streams": `
let r = await fetch(process.env.SECURE + "/stream"), text = "";
const decoder = new TextDecoder();
for await (const piece of r.body) text += decoder.decode(piece, { stream: true });
assert(text === "line 0\nline 1\nline 2\nline 3\nline 4\n");
const reader = (await fetch(process.env.PLAIN + "/large")).body.getReader();
let n = 0;
for (;;) {
  const { done, value } = await reader.read();
  if (done) break;
  n += value.length;
}
assert(n === 4 << 20);
r = await fetch(process.env.SECURE + "/large");
await r.body.cancel();
await fails(async () => (await fetch(process.env.SECURE + "/cut")).text(), "TypeError", "terminated");
`,
	"redirects": `
const at = process.env.SECURE + "/redirect";
let r = await fetch(at);
assert(r.redirected && r.url.endsWith("/json?redirected") && (await r.json()).query === "redirected");
r = await fetch(at, { redirect: "manual" });
assert(r.status === 302 && r.headers.get("location") === "/json?redirected");
await fails(() => fetch(at, { redirect: "error" }), "TypeError", "redirect");
`,
	"being given up": `
const slow = process.env.SECURE + "/slow", begin = performance.now();
const r = await fetch(slow, { signal: AbortSignal.timeout(300) });
await fails(() => r.text(), "TimeoutError", "timeout");
const c = new AbortController();
setTimeout(() => c.abort(), 100);
await fails(async () => (await fetch(slow, { signal: c.signal })).text(), "AbortError", "aborted");
await fails(() => fetch(slow, { signal: AbortSignal.abort(new RangeError("mine")) }), "RangeError", "mine");
assert(performance.now() - begin < 60_000);
await fetch(process.env.SECURE + "/path", { signal: AbortSignal.timeout(3_600_000) }); // no test waits for it
`,
	"errors": `
const why = async (url) => fetch(url).then(() => { throw new Error(url); }, (e) => { assert(e instanceof TypeError, String(e)); return [e.cause.code, e.message].join(" "); });
assert(/^CERT.*no certificate that this host trusts/.test(await why(process.env.UNTRUSTED)), await why(process.env.UNTRUSTED));
assert(/^ECONNREFUSED/.test(await why(process.env.NOBODY)), await why(process.env.NOBODY));
assert(/^ENOTFOUND/.test(await why("https://gone.example.com/")), await why("https://gone.example.com/"));
assert(/^EACCES .*not among the hosts that may be reached/.test(await why("https://evil.example/")), await why("https://evil.example/"));
`,
}

func TestFetch(t *testing.T) {
	p := open(t, allowed, "gone.example.com:*!private")
	for name, code := range fetchPrograms {
		t.Run(name, func(t *testing.T) { p.run(t, "javascript", helpers+code) })
	}
}

const helpers = `
const assert = (ok, why) => { if (!ok) throw new Error("it is not so" + (why ? ": " + why : "")); };
const fails = async (f, name, text) => {
  try { await f(); } catch (e) {
    assert(e.name === name && e.message.includes(text), e.name + ": " + e.message);
    return;
  }
  throw new Error("it worked");
};
`
