import { render } from "preact"
import { useEffect, useState } from "preact/hooks"
import { type Approval, Failure, type Who, approvals, decide, sessions, signIn, signOut, whoami } from "./api"
import { Letters, Moment, Problem, every } from "./parts"

const failureOf = (e: unknown) => e instanceof Failure ? e : new Failure(0, String(e), "")

function SignIn({ done, first }: { done: (who: Who) => void; first: Failure | null }) {
	const [problem, fail] = useState(first)
	const [token, set] = useState("")
	const submit = async (e: Event) => {
		e.preventDefault()
		try {
			done(await signIn({ token: token.trim() }))
		} catch (e) {
			fail(failureOf(e))
		}
	}
	return <main class="narrow">
		<h1>Sign in to paddock</h1>
		<p>On the server's machine, <code>paddock open</code> prints a link that opens this page signed in, once.</p>
		<form onSubmit={submit}>
			<label for="token">Or a token</label>
			<input id="token" type="password" autocomplete="off" spellcheck={false} required value={token} onInput={e => set(e.currentTarget.value)} />
			<button type="submit">Sign in</button>
		</form>
		<Problem of={problem} />
	</main>
}

function Sessions({ denied }: { denied: () => void }) {
	const { value, problem } = every(sessions, denied)
	return <>
		<h1>Sessions</h1>
		<Problem of={problem} />
		{value && value.length === 0 && <p>There are no sessions.</p>}
		{value && value.length > 0 && <div class="wide" role="region" aria-label="Sessions" tabIndex={0}><table>
			<thead><tr>{["Session", "State", "Isolation", "Language", "Executions", "Last used", "Expires"].map(h => <th scope="col">{h}</th>)}</tr></thead>
			<tbody>{value.map(s => <tr key={s.session_id}>
				<th scope="row"><Letters text={s.name || s.session_id} />{s.name && <small><Letters text={s.session_id} /></small>}</th>
				<td><Letters text={s.waiting ? s.state + ", waits for a person" : s.state} /></td>
				<td><Letters text={s.isolation} />{s.image && <small><Letters text={s.image} /></small>}</td>
				<td><Letters text={s.language} /></td>
				<td>{s.execution_count}</td>
				<td><Moment at={s.last_used_at} /></td>
				<td><Moment at={s.expires_at} /></td>
			</tr>)}</tbody>
		</table></div>}
	</>
}

function Waiting({ one, decided }: { one: Approval; decided: () => void }) {
	const [problem, fail] = useState<Failure | null>(null)
	const [reason, set] = useState("")
	const [busy, setBusy] = useState(false)
	const choose = async (grant: boolean) => {
		setBusy(true)
		try {
			await decide(one.id, grant, reason)
		} catch (e) {
			fail(failureOf(e))
			setBusy(false)
		}
		decided()
	}
	const title = one.id + "-title"
	return <article aria-labelledby={title}>
		<h2 id={title}><Letters text={one.server} /> · <Letters text={one.tool} /></h2>
		<dl>
			<dt>Session</dt><dd><Letters text={one.session_id} /></dd>
			<dt>Owner</dt><dd><Letters text={one.owner} /></dd>
			<dt>Asked</dt><dd><Moment at={one.created_at} /></dd>
			<dt>Expires</dt><dd><Moment at={one.expires_at} /></dd>
			{one.description && <><dt>The server says</dt><dd class="text"><Letters text={one.description} /></dd></>}
		</dl>
		<h3>Arguments, as they will be sent</h3>
		<pre class="arguments" tabIndex={0} aria-label="Arguments"><Letters text={one.arguments_text} /></pre>
		<p><small>SHA-256 <Letters text={one.arguments_sha256} /></small></p>
		<label for={one.id + "-reason"}>Reason, which the program reads if it is denied</label>
		<input id={one.id + "-reason"} maxLength={500} value={reason} onInput={e => set(e.currentTarget.value)} />
		<div class="buttons">
			<button type="button" disabled={busy} onClick={() => choose(true)}>Allow once</button>
			<button type="button" disabled={busy} onClick={() => choose(false)}>Deny</button>
		</div>
		<Problem of={problem} />
	</article>
}

function Console({ who, denied }: { who: Who; denied: () => void }) {
	const [page, go] = useState(location.hash)
	useEffect(() => {
		const changed = () => go(location.hash)
		addEventListener("hashchange", changed)
		return () => removeEventListener("hashchange", changed)
	}, [])
	const waiting = every(async () => who.tools?.includes("approve") ? await approvals() : [], denied)
	const n = waiting.value?.length ?? 0
	const here = page === "#/approvals" ? "approvals" : "sessions"
	useEffect(() => { document.title = (n > 0 ? `(${n}) ` : "") + (here === "approvals" ? "Approvals" : "Sessions") + " – paddock" }, [n, here])
	const leave = async () => {
		await signOut().catch(() => undefined)
		denied()
	}
	return <>
		<header>
			<strong>paddock</strong>
			<nav aria-label="Pages">
				<a href="#/sessions" aria-current={here === "sessions" ? "page" : undefined}>Sessions</a>
				<a href="#/approvals" aria-current={here === "approvals" ? "page" : undefined}>Approvals{n > 0 && <span class="badge">{n}<span class="unseen"> waiting</span></span>}</a>
			</nav>
			<span class="who"><Letters text={who.name} /></span>
			<button type="button" onClick={leave}>Sign out</button>
		</header>
		<main>
			{here === "sessions" && <Sessions denied={denied} />}
			{here === "approvals" && <>
				<h1>Approvals</h1>
				<Problem of={waiting.problem} />
				{!who.tools?.includes("approve") && <p>This sign-in may not decide about calls. A link of <code>paddock open</code> may, and a token with the scope <code>approve</code>.</p>}
				{waiting.value && n === 0 && who.tools?.includes("approve") && <p>No call waits for a person.</p>}
				{waiting.value?.map(one => <Waiting key={one.id} one={one} decided={waiting.again} />)}
			</>}
		</main>
	</>
}

function App() {
	const [who, set] = useState<Who | null>()
	const [problem, fail] = useState<Failure | null>(null)
	useEffect(() => {
		// The ticket is used up: it has no place in the browser's history.
		const ticket = new URLSearchParams(location.hash.slice(1)).get("ticket")
		if (ticket !== null) history.replaceState(null, "", location.pathname + location.search)
		const enter = ticket === null ? whoami() : signIn({ ticket }).catch(async (e: unknown) => {
			fail(failureOf(e))
			return whoami() // who is signed in already stays so
		})
		enter.then(set, (e: unknown) => {
			const f = failureOf(e)
			if (f.status !== 401) fail(f)
			set(null)
		})
	}, [])
	if (who === undefined) return <main class="narrow"><p>…</p></main>
	if (who === null) return <SignIn done={set} first={problem} />
	return <Console who={who} denied={() => { fail(null); set(null) }} />
}

const at = document.getElementById("app")
if (at) {
	at.replaceChildren()
	render(<App />, at)
}
